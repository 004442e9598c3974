package top

import (
	"math"
	"strconv"
	"strings"

	"warpgauge/pkg/cmdline"

	"github.com/charmbracelet/x/ansi"
)

// maxText is how much of a text is shown, in bytes.
const maxText = 4 << 10

// clean bounds a text and keeps it from acting on the terminal: names of pods, models and processes are
// chosen by others.
func clean(s string) string { return cmdline.OneLine(s[:min(len(s), maxText)]) }

// fit makes s exactly width cells wide, and clean.
func fit(s string, width int, right bool) string {
	if width <= 0 {
		return ""
	}
	s = ansi.Truncate(clean(s), width, "…")
	pad := strings.Repeat(" ", max(width-ansi.StringWidth(s), 0))
	if right {
		return pad + s
	}
	return s + pad
}

// steps are the cells of a plot, the lowest first.
var steps = []string{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}

// plot draws values, one per cell, in that many lines, the highest line first. NaN
// is a gap; a value out of the range is drawn at its edge. A value that is known is never
// without ink.
func plot(values []float64, low, high float64, lines int) []string {
	levels := len(steps) - 1
	out := make([]strings.Builder, lines)
	for _, v := range values {
		ink := 0
		if !math.IsNaN(v) && high > low {
			ink = int(math.Round((v - low) / (high - low) * float64(levels*lines)))
			ink = min(max(ink, 1), levels*lines)
		}
		for i := range out {
			_, _ = out[i].WriteString(steps[min(max(ink-(lines-1-i)*levels, 0), levels)]) // never an error
		}
	}
	text := make([]string, lines)
	for i := range out {
		text[i] = out[i].String()
	}
	return text
}

// number writes v with that many digits after the point and its unit, "-" if it is
// not known.
func number(v float64, digits int, unit string) string {
	if math.IsNaN(v) {
		return "-"
	}
	return strconv.FormatFloat(v, 'f', digits, 64) + unit
}

// gigabytes writes bytes in GiB with three digits.
func gigabytes(v float64) string {
	if v /= 1 << 30; v < 99.95 {
		return number(v, 1, "")
	}
	return number(v, 0, "")
}

// exact writes a value of any size in few characters, "-" if it is not known.
func exact(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	if v == math.Trunc(v) && math.Abs(v) < 1e15 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}

// short writes seconds with one unit, "-" if they are not known.
func short(s float64) string {
	switch {
	case math.IsNaN(s):
		return "-"
	case s < 10:
		return strconv.FormatFloat(math.Floor(max(s, 0)*10)/10, 'f', -1, 64) + "s"
	case s < 120:
		return number(math.Floor(s), 0, "s")
	case s < 7200:
		return number(math.Floor(s/60), 0, "min")
	case s < 48*3600:
		return number(math.Floor(s/3600), 0, "h")
	}
	return number(math.Floor(s/86400), 0, "d")
}
