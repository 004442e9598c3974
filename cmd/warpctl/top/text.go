package top

import (
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"warpgauge/pkg/cmdline"

	"github.com/charmbracelet/x/ansi"
)

// maxText is how much of one text of an answer is kept, in bytes.
const maxText = 1 << 10

// clean bounds a text and keeps it from acting on the terminal: names of pods, models and processes are
// chosen by others.
func clean(s string) string { return cmdline.OneLine(s[:min(len(s), maxText)]) }

// cleanAll cleans every text that v, a pointer, leads to, keys of maps included.
func cleanAll(v any) { cleanValue(reflect.ValueOf(v)) }

func cleanValue(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() {
			v.SetString(clean(v.String()))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			cleanValue(v.Elem())
		}
	case reflect.Slice:
		if k := v.Type().Elem().Kind(); k < reflect.Array { // numbers
			return
		}
		for i := range v.Len() {
			cleanValue(v.Index(i))
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			cleanValue(v.Field(i))
		}
	case reflect.Map: // of text, as all maps of the API are
		if v.IsNil() || v.Type().Elem().Kind() != reflect.String {
			return
		}
		out := reflect.MakeMapWithSize(v.Type(), v.Len())
		for i := v.MapRange(); i.Next(); {
			out.SetMapIndex(reflect.ValueOf(clean(i.Key().String())), reflect.ValueOf(clean(i.Value().String())))
		}
		v.Set(out)
	}
}

// glyphs are the characters that depend on what the terminal can show.
type glyphs struct {
	cut   string   // where text was cut off
	steps []string // of a plot, the lowest first; the first is empty
}

var (
	blocks = &glyphs{cut: "…", steps: []string{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}}
	plain  = &glyphs{cut: "~", steps: []string{" ", ".", ":", "-", "=", "+", "*", "%", "#"}}
)

// fit makes s exactly width cells wide.
func (g *glyphs) fit(s string, width int, right bool) string {
	if width <= 0 {
		return ""
	}
	n := ansi.StringWidth(s)
	if n > width {
		s = ansi.Truncate(s, width, g.cut)
		n = ansi.StringWidth(s)
	}
	pad := strings.Repeat(" ", max(width-n, 0))
	if right {
		return pad + s
	}
	return s + pad
}

// plot draws values, one per cell, in that many lines, the highest line first. NaN
// is a gap; a value out of the range is drawn at its edge. A value that is known is never
// without ink.
func (g *glyphs) plot(values []float64, low, high float64, lines int) []string {
	levels := len(g.steps) - 1
	out := make([]strings.Builder, lines)
	for _, v := range values {
		ink := 0
		if !math.IsNaN(v) && high > low {
			ink = int(math.Round((v - low) / (high - low) * float64(levels*lines)))
			ink = min(max(ink, 1), levels*lines)
		}
		for i := range out {
			_, _ = out[i].WriteString(g.steps[min(max(ink-(lines-1-i)*levels, 0), levels)]) // never an error
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
	v /= 1 << 30
	if math.IsNaN(v) {
		return "-"
	}
	if v < 99.95 {
		return number(v, 1, "")
	}
	return number(v, 0, "")
}

// exact writes a value of any size in few characters.
func exact(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e15 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}

// short writes a duration with one unit.
func short(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 10*time.Second:
		return strconv.FormatFloat(math.Floor(d.Seconds()*10)/10, 'f', -1, 64) + "s"
	case d < 2*time.Minute:
		return strconv.Itoa(int(d/time.Second)) + "s"
	case d < 2*time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + "min"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d/time.Hour)) + "h"
	}
	return strconv.Itoa(int(d/(24*time.Hour))) + "d"
}
