package main

import (
	"bytes"
	"strings"
	"testing"

	"warpgauge/pkg/field"
)

// TestDCGMHasEachField: the page has each field once: as a reading,
// as a label, as a part, or with the reason why it is missing.
func TestDCGMHasEachField(t *testing.T) {
	var b bytes.Buffer
	if err := writeDCGM(&b); err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(b.String(), "\n| Id |")
	for _, d := range field.All() {
		want := 1
		if d.Factor != 0 || d.Kind == field.None || d.Event {
			want = 0
		}
		rows := 0
		for line := range strings.Lines(text) {
			if cell := strings.SplitN(line, " | ", 3); strings.HasPrefix(line, "| ") && len(cell) > 1 {
				line = cell[0] + " " + cell[1] // names in a reason are none of the row's
			}
			rows += strings.Count(line, "`"+d.Name+"`")
		}
		if rows != want {
			t.Errorf("%s is there %d times, want %d", d.Name, rows, want)
		}
	}
}
