package exporter

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"
	"go.uber.org/zap"

	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
)

func fieldsCommand(a *Program) *cli.Command {
	return &cli.Command{
		Name:      "fields",
		Usage:     "List the fields that a counters CSV can ask for",
		ArgsUsage: "[PATTERN...]",
		Description: "PATTERN is part of an id, name, unit or meaning, in any case; with * it is a whole\n" +
			"name, and * stands for any text. The list has every field that matches a PATTERN.\n" +
			"TYPE is the type to use in the CSV. Ends with code 1 if nothing matches a PATTERN.",
		Flags: []cli.Flag{config.OutputFlag()},
		Action: func(_ context.Context, cmd *cli.Command) error {
			return listFields(a, cmd.String("output"), cmd.Args().Slice())
		},
	}
}

// fieldRow is a field of the catalogue in JSON.
type fieldRow struct {
	ID         int            `json:"id"`
	Name       string         `json:"name"`
	Aliases    []string       `json:"aliases,omitempty"`
	Type       string         `json:"type,omitempty"` // for the CSV; empty: no row can show it
	Kind       string         `json:"kind"`
	Level      string         `json:"level"`
	Unit       string         `json:"unit,omitempty"`
	Cost       string         `json:"cost"`
	Of         string         `json:"of,omitempty"` // the field that it is a multiple of
	Factor     float64        `json:"factor,omitempty"`
	Windows    []field.Window `json:"windows,omitempty"`
	Collectors []string       `json:"collectors"` // collectors that supply it for some device
	Help       string         `json:"help"`
}

// listFields writes the fields that match one of the patterns, or all fields without patterns.
func listFields(a *Program, form string, patterns []string) error {
	rows := make([]fieldRow, 0, 1024)
	table, err := a.Vendors(config.Default(), time.Time{}, zap.NewNop())
	if err != nil {
		return err
	}
	matched := make([]bool, len(patterns))
	for _, d := range field.All() {
		wanted := len(patterns) == 0
		for i, p := range patterns {
			if matches(d, strings.ToLower(p)) {
				matched[i], wanted = true, true
			}
		}
		if wanted {
			rows = append(rows, newFieldRow(d, table))
		}
	}
	err = config.WriteOutput(a.Out, form, map[string]any{"fields": rows}, func(w io.Writer) error { return writeFieldTable(w, rows) })
	for i, p := range patterns {
		if !matched[i] && err == nil {
			err = fmt.Errorf("no field matches %q", p)
			if best, ok := field.Suggest(p); ok {
				err = fmt.Errorf("%w (did you mean %s?)", err, best)
			}
		}
	}
	return err
}

// matches reports whether a field's id, name, alias, unit or help contains the lower-case pattern, or whether
// a name matches a pattern with *.
func matches(d *field.Descriptor, pattern string) bool {
	names := append([]string{d.Name}, d.Aliases...)
	if strings.Contains(pattern, "*") {
		return slices.ContainsFunc(names, func(name string) bool {
			ok, err := path.Match(pattern, strings.ToLower(name))
			return err == nil && ok
		})
	}
	all := strings.Join(append(names, strconv.Itoa(int(d.ID)), d.Unit, d.Help), "\n")
	return strings.Contains(strings.ToLower(all), pattern)
}

func newFieldRow(d *field.Descriptor, table []Vendor) fieldRow {
	r := fieldRow{
		ID: int(d.ID), Name: d.Name, Aliases: d.Aliases, Kind: d.Kind.String(), Level: d.Level.String(), Unit: d.Unit, Cost: d.Cost.String(),
		Factor: d.Factor, Windows: field.Windows(d), Collectors: []string{}, Help: d.Help,
	}
	if use, ok := d.Use(); ok {
		r.Type = use.String()
	}
	if of, ok := field.ByID(d.Of); ok && d.Factor != 0 {
		r.Of, d = of.Name, of
	}
	for _, v := range table {
		if v.Supplies != nil && v.Supplies(d) {
			r.Collectors = append(r.Collectors, v.Name)
		}
	}
	return r
}

func writeFieldTable(w io.Writer, rows []fieldRow) error {
	if len(rows) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tNAME\tTYPE\tUNIT\tLEVEL\tCOST\tCOLLECTORS\tMEANING")
	for _, r := range rows {
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.ID, r.Name, cmp.Or(r.Type, "-"), cmp.Or(r.Unit, "-"), r.Level, r.Cost,
			cmp.Or(strings.Join(r.Collectors, ","), "-"), r.meaning())
	}
	return t.Flush()
}

// meaning returns the help text, the source reading of a multiple, and the time that libraries average over, if known.
func (r *fieldRow) meaning() string {
	text := r.Help
	if r.Of != "" {
		text += fmt.Sprintf(" (%s × %v)", r.Of, r.Factor)
	}
	var means []string
	for _, w := range r.Windows {
		if w.Mean != "" {
			means = append(means, w.Library+" "+w.Mean)
		}
	}
	if len(means) > 0 {
		text += " [averaged: " + strings.Join(means, "; ") + "]"
	}
	return text
}
