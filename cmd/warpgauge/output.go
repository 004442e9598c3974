package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"unicode"

	"github.com/urfave/cli/v3"
)

func outputFlag() cli.Flag {
	return &cli.StringFlag{Name: "output", Value: "table", Usage: "table, for people; json or csv, for scripts."}
}

// output is what a command has to say, in each form.
type output struct {
	table func(io.Writer) error
	json  any
	csv   [][]string // the first row has the names of the columns
}

// checkOutput checks the value of --output before there is anything to write.
func checkOutput(form string) error {
	switch form {
	case "table", "json", "csv":
		return nil
	}
	return fmt.Errorf("--output is %q: write table, json or csv", form)
}

// writeOutput writes one of the forms.
func writeOutput(w io.Writer, form string, o output) error {
	switch form {
	case "table":
		var b bytes.Buffer
		err := o.table(&b)
		if _, werr := w.Write(bytes.Map(printable, b.Bytes())); err == nil {
			err = werr
		}
		return err
	case "json":
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(o.json)
	case "csv":
		return csv.NewWriter(w).WriteAll(o.csv)
	}
	return checkOutput(form)
}

// printable replaces what would control a terminal: names come from libraries and from
// exporters of other machines.
func printable(r rune) rune {
	if unicode.IsControl(r) && r != '\n' && r != '\t' {
		return '?'
	}
	return r
}

// noArguments refuses arguments that a command would ignore.
func noArguments(cmd *cli.Command) error {
	if word := cmd.Args().First(); word != "" {
		return fmt.Errorf("unexpected argument %q; see warpgauge %s --help", word, cmd.Name)
	}
	return nil
}
