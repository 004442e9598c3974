package sysfs

import "math"

// ParseDPM reads the present clock of pp_dpm_sclk and its like in MHz: the level
// that is marked with a star, among lines such as "1: 1700Mhz *". While a domain
// sleeps, drivers put a line "S: 19Mhz *" before them. NaN if no level is marked.
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

// ParseDPMMax reads the highest level of the same file, NaN if there is none.
func ParseDPMMax(text []byte) float64 {
	highest := math.NaN()
	for len(text) > 0 {
		var line []byte
		line, text = cutLine(text)
		if mhz, _ := dpmLevel(line); !(mhz <= highest) && !math.IsNaN(mhz) {
			highest = mhz
		}
	}
	return highest
}

// dpmLevel reads one line of a list of clocks.
func dpmLevel(line []byte) (mhz float64, marked bool) {
	line = trim(line)
	marked = len(line) > 0 && line[len(line)-1] == '*'
	i := 0
	for i < len(line) && line[i] != ':' {
		i++
	}
	if i == len(line) {
		return math.NaN(), false
	}
	v, unit, ok := leadingDecimal(trim(line[i+1:]))
	switch {
	case !ok:
		return math.NaN(), marked
	case hasPrefixFold(unit, "mhz"):
		return v, marked
	case hasPrefixFold(unit, "ghz"):
		return v * 1000, marked
	case hasPrefixFold(unit, "khz"):
		return v / 1000, marked
	default:
		return math.NaN(), marked
	}
}

// ParseLinkSpeed reads current_link_speed, "16.0 GT/s PCIe", in GT/s. "Unknown" is NaN.
func ParseLinkSpeed(text []byte) float64 {
	v, unit, ok := leadingDecimal(trim(text))
	if !ok || !hasPrefixFold(trim(unit), "gt/s") {
		return math.NaN()
	}
	return v
}

// Errors is what a RAS block has counted; NaN is what it does not say.
type Errors struct{ Uncorrectable, Correctable, Deferred float64 }

// ParseErrors reads ras/<block>_err_count: lines "ue: 0", "ce: 0" and, from
// newer drivers, "de: 0". While the GPU resets the text is "Query currently
// inaccessible", which is NaN.
func ParseErrors(text []byte) Errors {
	e := Errors{math.NaN(), math.NaN(), math.NaN()}
	for len(text) > 0 {
		var line []byte
		line, text = cutLine(text)
		line = trim(line)
		for name, to := range [3]*float64{&e.Uncorrectable, &e.Correctable, &e.Deferred} {
			if rest, ok := cutPrefix(line, [3]string{"ue:", "ce:", "de:"}[name]); ok {
				*to = count(rest)
			}
		}
	}
	return e
}

// count is a number that cannot be negative, NaN if there is none.
func count(text []byte) float64 {
	v, ok := ParseUint(text)
	if !ok {
		return math.NaN()
	}
	return float64(v)
}

// ParseThroughput reads pcie_bw, "90000 40000 256": packets sent and received in
// a second, and how many bytes one can carry. The products, in bytes per second,
// are upper bounds.
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
