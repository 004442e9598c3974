//go:build linux && cgo

package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"warpgauge/collectors/dcgm"
	"warpgauge/collectors/nvml"
	"warpgauge/collectors/rocm"
	"warpgauge/etc"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
)

// migrationPage lists every name of dcgm-exporter with its counterpart here.
func migrationPage() (any, error) {
	rows, err := shippedRows()
	if err != nil {
		return nil, err
	}
	sources := []func(*field.Descriptor) bool{dcgm.Supplies, nvml.Has(), rocm.Supplies}
	var families, names strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&families, "| `%s` | %s | %s | %s |", r.name, r.kind, r.desc.Unit, yesNo[r.on])
		for _, supplies := range sources {
			fmt.Fprintf(&families, " %s |", yesNo[supplies(r.desc)])
		}
		fmt.Fprintf(&families, " %s |\n", otherNames(r))
		if latest, scale := r.desc.NewName(); latest != r.desc.Name {
			fmt.Fprintf(&names, "| `%s` | `%s` | %s |\n", r.desc.Name, latest, newValue(r.desc, scale))
		}
	}
	return struct{ Flags, Families, Names string }{migrationFlags(flagTable()), families.String(), names.String()}, nil
}

// migrationFlags returns the table of dcgm-exporter's flags and variables.
func migrationFlags(set *config.Set) string {
	var b strings.Builder
	b.WriteString("| Flag | Environment | Here |\n|---|---|---|\n")
	for _, f := range set.Flags() {
		if f.Origin != config.Contract {
			continue
		}
		here := "the same"
		switch {
		case f.NoEffect != "":
			here = "accepted, no effect: " + f.NoEffect
		case f.Differs != "":
			here = "the same, but: " + f.Differs
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s |\n", flagNames(f), f.Env, cell(here))
	}
	return b.String()
}

// shippedRow is a row of the lists that dcgm-exporter also has.
type shippedRow struct {
	name, kind string
	desc       *field.Descriptor
	on         bool // the row is not commented out
}

// csvRow matches a row, commented out or not: field and type.
var csvRow = regexp.MustCompile(`(?m)^(# *)?([A-Za-z]\w*), *(gauge|counter|label),`)

func shippedRows() ([]shippedRow, error) {
	var out []shippedRow
	at := map[field.ID]int{}
	for _, file := range []string{"default-counters.csv", "dcp-metrics-included.csv"} {
		text, err := etc.Files().ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, m := range csvRow.FindAllStringSubmatch(string(text), -1) {
			d, scale, ok := field.ByName(m[2])
			if !ok || scale != 1 {
				return nil, fmt.Errorf("%s: the catalogue has no field %q", file, m[2])
			}
			if i, ok := at[d.ID]; ok {
				out[i].on = out[i].on || m[1] == ""
				continue
			}
			at[d.ID] = len(out)
			out = append(out, shippedRow{name: m[2], kind: m[3], desc: d, on: m[1] == ""})
		}
	}
	slices.SortFunc(out, func(a, b shippedRow) int { return cmp.Compare(a.desc.ID, b.desc.ID) })
	return out, nil
}

// newValue returns the formula from the value under the old name to the value under the new one.
func newValue(d *field.Descriptor, scale float64) string {
	if scale == 1 {
		return "the same"
	}
	latest, _ := field.ByID(d.Scaled[0])
	unit := "in " + latest.Unit
	if latest.Unit == "ratio" {
		unit = "as a ratio"
	}
	return fmt.Sprintf("old value in %s × %s, %s", d.Unit, short(scale), unit)
}

func otherNames(r shippedRow) string {
	var out []string
	for _, name := range append([]string{r.desc.Name}, r.desc.Aliases...) {
		if name != r.name {
			out = append(out, "`"+name+"`")
		}
	}
	for _, id := range r.desc.Scaled {
		if d, ok := field.ByID(id); ok {
			out = append(out, fmt.Sprintf("`%s` (%s, × %g)", d.Name, d.Unit, d.Factor))
		}
	}
	return strings.Join(out, " ")
}

var yesNo = map[bool]string{true: "yes", false: "no"}
