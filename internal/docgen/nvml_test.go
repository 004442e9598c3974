//go:build linux && cgo

package main

import (
	"bytes"
	"strings"
	"testing"

	"warpgauge/pkg/field"
)

// TestNVMLPage: the page has a row for every field of the table, and a reason for each
// number of the catalogue that is not supplied, or the generator panics.
func TestNVMLPage(t *testing.T) {
	var page bytes.Buffer
	if err := writeNVML(&page); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	for _, d := range field.All() {
		number := d.Kind == field.Int64 || d.Kind == field.Double
		if number && d.Factor == 0 && !strings.Contains(text, "`"+d.Name+"`") {
			t.Errorf("docs/nvml.md does not name %s", d.Name)
		}
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "| ") && strings.Contains(line, "\n|") {
			t.Errorf("a row with a line break: %q", line)
		}
	}
}
