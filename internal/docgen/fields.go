//go:build linux && cgo

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"warpgauge/pkg/field"
)

// fieldsPage returns the rows of docs/fields.md.
func fieldsPage() (any, error) {
	var b strings.Builder
	for _, d := range field.All() {
		if d.Factor != 0 {
			continue // shown with its base reading
		}
		fmt.Fprintf(&b, "| %d | `%s` | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", d.ID, d.Name, codes(d.Aliases), use(d), d.Kind, d.Level,
			d.Unit, span(d), d.Cost, baseUnits(d), cell(d.Help))
	}
	return struct{ Windows, Rows string }{windows(), b.String()}, nil
}

// windows documents how the libraries average or sample their values. Adjacent fields with the same text share a row.
func windows() string {
	var b strings.Builder
	type row struct {
		first, last string
		field.Window
	}
	var rows []row
	open := map[field.Window]int{}
	for _, d := range field.All() {
		if d.Factor != 0 {
			continue
		}
		of := field.Windows(d)
		for w := range open {
			if !slices.Contains(of, w) {
				delete(open, w)
			}
		}
		for _, w := range of {
			i, ok := open[w]
			if !ok {
				i = len(rows)
				open[w] = i
				rows = append(rows, row{first: d.Name, Window: w})
			}
			rows[i].last = d.Name
		}
	}
	for _, r := range rows {
		names := "`" + r.first + "`"
		if r.last != r.first {
			names += " to `" + r.last + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", names, r.Library, r.Update, r.Mean, r.Evidence)
	}
	return b.String()
}

func codes(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "`" + strings.Join(names, "` `") + "`"
}

// use returns the metric type that a CSV should give to the field.
func use(d *field.Descriptor) string {
	if t, ok := d.Use(); ok {
		return t.String()
	}
	return ""
}

// span returns the plausible range of a number.
func span(d *field.Descriptor) string {
	if d.Kind != field.Int64 && d.Kind != field.Double {
		return ""
	}
	return fmt.Sprintf("%s to %s", short(d.Min), short(d.Max))
}

func short(v float64) string { return strconv.FormatFloat(v, 'g', 10, 64) }

// baseUnits lists the fields derived from the reading with id, each with unit and factor.
func baseUnits(d *field.Descriptor) string {
	var out []string
	for _, id := range d.Scaled {
		s, _ := field.ByID(id)
		out = append(out, fmt.Sprintf("`%s` (%d, %s, × %s)", s.Name, s.ID, s.Unit, short(s.Factor)))
	}
	return strings.Join(out, " ")
}
