package sysfs

import (
	"bytes"
	"math"
	"strconv"
)

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == 0 }

// trim works like bytes.Trim, but is twice as fast for short texts.
func trim(text []byte) []byte {
	for len(text) > 0 && isSpace(text[0]) {
		text = text[1:]
	}
	for len(text) > 0 && isSpace(text[len(text)-1]) {
		text = text[:len(text)-1]
	}
	return text
}

// ParseUint parses a decimal number, or a hexadecimal one with 0x. Only white space may follow.
func ParseUint(text []byte) (uint64, bool) {
	text = trim(text)
	if len(text) > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X') {
		return ParseHex(text[2:])
	}
	v, rest, ok := leadingUint(text)
	return v, ok && len(rest) == 0
}

// ParseHex parses hexadecimal digits without 0x.
func ParseHex(text []byte) (uint64, bool) {
	v, err := strconv.ParseUint(string(trim(text)), 16, 64)
	return v, err == nil
}

// ParseFloat parses a decimal integer, which may be negative, as hwmon prints it. It returns NaN for anything else.
func ParseFloat(text []byte) float64 {
	text = trim(text)
	digits, negative := bytes.CutPrefix(text, []byte("-"))
	v, rest, ok := leadingUint(digits)
	switch {
	case !ok || len(rest) > 0:
		return math.NaN()
	case negative:
		return -float64(v)
	}
	return float64(v)
}

// leadingUint parses the digits at the start. It fails if the number does not fit.
func leadingUint(text []byte) (v uint64, rest []byte, ok bool) {
	i := 0
	for ; i < len(text) && text[i]-'0' <= 9; i++ {
		d := uint64(text[i] - '0')
		if v > (math.MaxUint64-d)/10 {
			return 0, nil, false
		}
		v = v*10 + d
	}
	return v, text[i:], i > 0
}

// leadingDecimal parses digits with at most one decimal point.
func leadingDecimal(text []byte) (v float64, rest []byte, ok bool) {
	whole, rest, ok := leadingUint(text)
	if !ok {
		return math.NaN(), nil, false
	}
	v = float64(whole)
	if len(rest) < 2 || rest[0] != '.' {
		return v, rest, true
	}
	scale := 0.1
	for rest = rest[1:]; len(rest) > 0 && rest[0]-'0' <= 9; rest = rest[1:] {
		v += float64(rest[0]-'0') * scale
		scale /= 10
	}
	return v, rest, true
}

// cutLine returns the first line and the rest.
func cutLine(text []byte) (line, rest []byte) {
	line, rest, _ = bytes.Cut(text, []byte("\n"))
	return line, rest
}

// ParseDPM returns the current clock in pp_dpm_sclk and similar files, in MHz. Their lines look like "1: 1700Mhz *", with
// a star at the current level. For a sleeping domain drivers put a line "S: 19Mhz *" first. It returns NaN if no level
// has a star.
func ParseDPM(text []byte) float64 {
	for len(text) > 0 {
		var line []byte
		line, text = cutLine(text)
		if mhz, marked := dpmLevel(line); marked {
			return mhz
		}
	}
	return math.NaN()
}

// ParseDPMMax returns the highest level of such a file, or NaN without a level.
func ParseDPMMax(text []byte) float64 {
	_, highest := dpmRange(text)
	return highest
}

// ParseDPMMin returns the lowest level of such a file. It ignores the level of a sleeping domain.
func ParseDPMMin(text []byte) float64 {
	lowest, _ := dpmRange(text)
	return lowest
}

func dpmRange(text []byte) (lowest, highest float64) {
	lowest, highest = math.NaN(), math.NaN()
	for len(text) > 0 {
		var line []byte
		line, text = cutLine(text)
		mhz, _ := dpmLevel(line)
		if math.IsNaN(mhz) {
			continue
		}
		if !(mhz <= highest) {
			highest = mhz
		}
		if asleep := trim(line)[0] == 'S'; !asleep && !(mhz >= lowest) {
			lowest = mhz
		}
	}
	return lowest, highest
}

// dpmLevel parses one line of a list of clocks.
func dpmLevel(line []byte) (mhz float64, marked bool) {
	line = trim(line)
	_, level, found := bytes.Cut(line, []byte(":"))
	if !found {
		return math.NaN(), false
	}
	marked = bytes.HasSuffix(line, []byte("*"))
	v, unit, ok := leadingDecimal(trim(level))
	if !ok || len(unit) < 3 {
		return math.NaN(), marked
	}
	switch unit = unit[:3]; {
	case bytes.EqualFold(unit, []byte("mhz")):
		return v, marked
	case bytes.EqualFold(unit, []byte("ghz")):
		return v * 1000, marked
	case bytes.EqualFold(unit, []byte("khz")):
		return v / 1000, marked
	default:
		return math.NaN(), marked
	}
}

// ParseLinkSpeed parses current_link_speed, "16.0 GT/s PCIe", in GT/s. "Unknown" is NaN.
func ParseLinkSpeed(text []byte) float64 {
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
			if rest, ok := bytes.CutPrefix(trim(line), prefix); ok {
				out = count(rest)
			}
		}
		return out
	}
}

// count parses a non-negative number. It returns NaN for anything else.
func count(text []byte) float64 {
	v, ok := ParseUint(text)
	if !ok {
		return math.NaN()
	}
	return float64(v)
}

// ParseThroughput parses pcie_bw, "90000 40000 256": packets sent and received in a second, and the maximum payload in
// bytes. The products, in bytes per second, are upper bounds.
func ParseThroughput(text []byte) (sent, received float64, ok bool) {
	var v [3]float64
	for i := range v {
		n, rest, ok := leadingUint(trim(text))
		if !ok || len(rest) > 0 && !isSpace(rest[0]) {
			return 0, 0, false
		}
		v[i], text = float64(n), rest
	}
	return v[0] * v[2], v[1] * v[2], len(trim(text)) == 0
}
