package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v3"

	"warpgauge/pkg/field"
)

func fieldsCommand(a *app) *cli.Command {
	return &cli.Command{
		Name:        "fields",
		Usage:       "List the fields that a counters CSV can ask for",
		ArgsUsage:   "[PATTERN]",
		Description: "PATTERN is part of an id, name, unit or meaning, in any case.",
		Action: func(_ context.Context, cmd *cli.Command) error {
			return writeFieldTable(a.out, cmd.Args().First())
		},
	}
}

// writeFieldTable writes the fields whose id, name, alias, unit or help contains filter
// in any case, as aligned text; all for an empty filter.
func writeFieldTable(w io.Writer, filter string) error {
	var rows bytes.Buffer
	filter = strings.ToLower(filter)
	for _, d := range field.All() {
		if matches(d, filter) {
			fmt.Fprintf(&rows, "%d\t%s\t%s\t%s\t%s\t%s\t%s%s\n", d.ID, d.Name, d.Kind, d.Level, cmp.Or(d.Unit, "-"), d.Cost, meaning(d), averaged(d))
		}
	}
	if rows.Len() == 0 {
		_, err := fmt.Fprintf(w, "no field matches %q\n", filter)
		return err
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "ID\tNAME\tKIND\tLEVEL\tUNIT\tCOST\tMEANING\n%s", &rows)
	return t.Flush()
}

func matches(d *field.Descriptor, filter string) bool {
	all := strings.Join(append([]string{strconv.Itoa(int(d.ID)), d.Name, d.Unit, d.Help}, d.Aliases...), "\n")
	return strings.Contains(strings.ToLower(all), filter)
}

// meaning is the help text, and for a multiple what it is of.
func meaning(d *field.Descriptor) string {
	if d.Factor == 0 {
		return d.Help
	}
	of, _ := field.ByID(d.Of)
	return fmt.Sprintf("%s (%s × %v)", d.Help, of.Name, d.Factor)
}

// averaged says over which time libraries average the value, as far as it is known.
func averaged(d *field.Descriptor) string {
	var out []string
	for _, w := range field.Windows(d) {
		if w.Mean != "" {
			out = append(out, w.Library+" "+w.Mean)
		}
	}
	if len(out) == 0 {
		return ""
	}
	return " [averaged: " + strings.Join(out, "; ") + "]"
}
