package top

import (
	"math"
	"strconv"
	"strings"

	"warpgauge/pkg/config"

	"github.com/charmbracelet/x/ansi"
)

// maxText bounds the shown part of a text, in bytes.
const maxText = 4 << 10

// clean limits a text and removes control characters, because others choose the names of pods, models and processes.
func clean(s string) string { return config.OneLine(s[:min(len(s), maxText)]) }

// fit returns s cleaned and exactly width cells wide.
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

// steps lists the characters of a plot, lowest first.
var steps = []string{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}

// plot draws values, one per cell, in a number of lines, top line first. NaN is a gap; a value out
// of range is drawn at the edge. Every known value is visible.
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
			_, _ = out[i].WriteString(steps[min(max(ink-(lines-1-i)*levels, 0), levels)]) // cannot fail
		}
	}
	text := make([]string, lines)
	for i := range out {
		text[i] = out[i].String()
	}
	return text
}

// number formats v with a number of decimals and a unit, or "-" if it is unknown.
func number(v float64, digits int, unit string) string {
	if math.IsNaN(v) {
		return "-"
	}
	return strconv.FormatFloat(v, 'f', digits, 64) + unit
}

// gigabytes formats bytes as GiB with three digits.
func gigabytes(v float64) string {
	if v /= 1 << 30; v < 99.95 {
		return number(v, 1, "")
	}
	return number(v, 0, "")
}

// exact formats a value of any size in few characters, or "-" if it is unknown.
func exact(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	if v == math.Trunc(v) && math.Abs(v) < 1e15 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}

// short formats seconds with one unit, or "-" if they are unknown.
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
