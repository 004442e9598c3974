package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/urfave/cli/v3"

	"warpgauge/pkg/field"
)

// OutputFlag is --output, the format of a command's result.
func OutputFlag() cli.Flag {
	return &cli.StringFlag{Name: "output", Value: "table", Usage: "table, for people; json, for scripts.", Validator: CheckOutput}
}

// CheckOutput checks the value of --output.
func CheckOutput(form string) error {
	if form == "table" || form == "json" {
		return nil
	}
	return errors.New("write table or json")
}

// WriteOutput writes the result of a command as table or as JSON.
func WriteOutput(w io.Writer, form string, result any, table func(io.Writer) error) error {
	if form == "json" {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(result)
	}
	var b bytes.Buffer
	err := table(&b)
	if _, werr := w.Write(bytes.Map(field.Printable, b.Bytes())); err == nil {
		err = werr
	}
	return err
}

// Counted returns a number with its noun: "1 GPU", "2 GPUs".
func Counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// OneLine replaces everything that could act on a terminal or end the line: control characters, text direction marks,
// and bytes that are not UTF-8.
func OneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
