package sysfs

import (
	"bytes"
	"math"
	"strconv"
	"strings"
)

// trim removes white space and zero bytes around a text.
func trim(text []byte) []byte { return bytes.Trim(text, " \n\t\r\x00") }

// parseUint parses a decimal number, or a hexadecimal one with 0x. Only white space may follow.
func parseUint(text []byte) (uint64, bool) {
	text = trim(text)
	if len(text) > 2 && text[0] == '0' && text[1]|0x20 == 'x' {
		return parseHex(text[2:])
	}
	return decimal(text)
}

// decimal parses digits. Unlike strconv.ParseUint it allocates nothing for other texts, which some drivers always return.
func decimal(text []byte) (v uint64, ok bool) {
	for _, c := range text {
		d := uint64(c - '0')
		if d > 9 || v > (math.MaxUint64-d)/10 {
			return 0, false
		}
		v = v*10 + d
	}
	return v, len(text) > 0
}

// parseHex parses hexadecimal digits without 0x.
func parseHex(text []byte) (uint64, bool) {
	v, err := strconv.ParseUint(string(trim(text)), 16, 64)
	return v, err == nil
}

// count parses a non-negative number. It returns NaN for anything else.
func count(text []byte) float64 {
	v, ok := parseUint(text)
	if !ok {
		return math.NaN()
	}
	return float64(v)
}

// signed parses a decimal integer, which may be negative, as hwmon prints it. It returns NaN for anything else.
func signed(text []byte) float64 {
	digits, negative := bytes.CutPrefix(trim(text), []byte("-"))
	v, ok := decimal(digits)
	switch {
	case !ok:
		return math.NaN()
	case negative:
		return -float64(v)
	}
	return float64(v)
}

// cutLine returns the first line without white space around it, and the rest. Unlike bytes.Lines it allocates nothing.
func cutLine(text []byte) (line, rest []byte) {
	line, rest, _ = bytes.Cut(text, []byte("\n"))
	return trim(line), rest
}

// leadingDecimal parses digits with at most one decimal point.
func leadingDecimal(text []byte) (v float64, rest []byte, ok bool) {
	rest = bytes.TrimLeft(text, "0123456789.")
	v, err := strconv.ParseFloat(string(text[:len(text)-len(rest)]), 64)
	return v, rest, err == nil
}

// Parsers of pp_dpm_sclk and similar files, in MHz: the current, lowest and highest clock. They return NaN without one.
func dpmCurrent(text []byte) float64 { current, _, _ := dpm(text); return current }
func dpmLowest(text []byte) float64  { _, lowest, _ := dpm(text); return lowest }
func dpmHighest(text []byte) float64 { _, _, highest := dpm(text); return highest }

// dpm parses lines such as "1: 1700Mhz *", with a star at the current level. For a sleeping domain drivers put a line
// "S: 19Mhz *" first, which is not the lowest level.
func dpm(text []byte) (current, lowest, highest float64) {
	current, lowest, highest = math.NaN(), math.NaN(), math.NaN()
	for len(text) > 0 {
		var line []byte
		line, text = cutLine(text)
		mhz := dpmLevel(line)
		if math.IsNaN(mhz) {
			continue
		}
		if math.IsNaN(current) && line[len(line)-1] == '*' {
			current = mhz
		}
		if !(mhz <= highest) {
			highest = mhz
		}
		if line[0] != 'S' && !(mhz >= lowest) {
			lowest = mhz
		}
	}
	return current, lowest, highest
}

// dpmLevel parses one line of a list of clocks.
func dpmLevel(line []byte) (mhz float64) {
	_, level, _ := bytes.Cut(line, []byte(":"))
	v, unit, ok := leadingDecimal(trim(level))
	if !ok || len(unit) < 3 {
		return math.NaN()
	}
	switch unit = unit[:3]; {
	case bytes.EqualFold(unit, []byte("mhz")):
		return v
	case bytes.EqualFold(unit, []byte("ghz")):
		return v * 1000
	case bytes.EqualFold(unit, []byte("khz")):
		return v / 1000
	}
	return math.NaN()
}

// linkSpeed parses current_link_speed, "16.0 GT/s PCIe", in GT/s. "Unknown" is NaN.
func linkSpeed(text []byte) float64 {
	v, unit, ok := leadingDecimal(trim(text))
	unit = trim(unit)
	if !ok || len(unit) < 4 || !bytes.EqualFold(unit[:4], []byte("gt/s")) {
		return math.NaN()
	}
	return v
}

// errorCount returns the parser of one count in ras/<block>_err_count, whose lines are "ue: 0", "ce: 0" and, in newer
// drivers, "de: 0". While the GPU resets, the text is "Query currently inaccessible" and the result is NaN.
func errorCount(name string) func(text []byte) float64 {
	prefix := []byte(name)
	return func(text []byte) float64 {
		out := math.NaN()
		for len(text) > 0 {
			var line []byte
			line, text = cutLine(text)
			if rest, ok := bytes.CutPrefix(line, prefix); ok {
				out = count(rest)
			}
		}
		return out
	}
}

// pageStates has the letters of the states of bad pages, by Page….
const pageStates = "RPF"

// badPages returns the parser of the number of bad pages in a state. It returns NaN if a line is not like
// "0x00001a2b : 0x00001000 : R".
func badPages(state uint8) func(text []byte) float64 {
	return func(text []byte) float64 {
		n := 0.0
		for len(text) > 0 {
			var line []byte
			line, text = cutLine(text)
			switch last := len(line) - 1; {
			case last < 0:
			case last < 4 || line[1] != 'x' || line[last-2] != ':' || strings.IndexByte(pageStates, line[last]) < 0:
				return math.NaN()
			case line[last] == pageStates[state]:
				n++
			}
		}
		return n
	}
}

// throughput parses pcie_bw, "90000 40000 256": packets sent and received in a second, and the maximum payload in bytes.
// The products, in bytes per second, are upper bounds.
func throughput(text []byte) (sent, received float64, ok bool) {
	words := bytes.Fields(text)
	if len(words) != 3 {
		return 0, 0, false
	}
	var v [3]float64
	for i, w := range words {
		n, ok := decimal(w)
		if !ok {
			return 0, 0, false
		}
		v[i] = float64(n)
	}
	return v[0] * v[2], v[1] * v[2], true
}
