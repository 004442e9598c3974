package dcgm

import (
	"fmt"
	"strings"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/golden"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

//go:generate go test -run ^TestMarkdownIsCurrent$ . -args -update

// TestMarkdownIsCurrent checks that docs/dcgm.md has the catalogue's current tables and names each field once: as a
// reading, as a label, as a part, or with the reason why it is missing. -update rewrites the page.
func TestMarkdownIsCurrent(t *testing.T) {
	_, text, _ := strings.Cut(golden.Fill(t, "../../docs/dcgm.md", tables()), "\n| Id |")
	for _, d := range field.All() {
		want := 1
		if _, foreign := collector.ForeignReading(d, field.VendorNVIDIA); foreign || d.Factor != 0 || d.Kind == field.None || d.Event {
			want = 0
		}
		rows := 0
		for line := range strings.Lines(text) {
			if cell := strings.SplitN(line, " | ", 3); strings.HasPrefix(line, "| ") && len(cell) > 1 {
				line = cell[0] + " " + cell[1] // ignore field names in a reason
			}
			rows += strings.Count(line, "`"+d.Name+"`")
		}
		testkit.ErrorIf(t, rows != want, "%s is there %d times, want %d", d.Name, rows, want)
	}
}

// tables returns the tables of the page, by the name of their section.
func tables() map[string]string {
	var readings, missing strings.Builder
	readings.WriteString("| Id | Field | Level | Value | Unit | Cost |\n|---:|---|---|---|---|---|\n")
	for _, d := range field.All() {
		if isReading(d) {
			fmt.Fprintf(&readings, "| %d | `%s` | %s | %s | %s | %s |\n", d.ID, d.Name, d.Level, d.Kind, d.Unit, d.Cost)
		}
	}
	missing.WriteString("| Fields | Why |\n|---|---|\n")
	for _, why := range []string{whyBinary, whyVGPU, whyNVML} {
		if names := namesOf(func(d *field.Descriptor) bool { return reasonOf(d) == why }); len(names) > 0 {
			fmt.Fprintf(&missing, "| %s | %s |\n", strings.Join(names, " "), why)
		}
	}
	return map[string]string{"readings": readings.String(), "labels": strings.Join(namesOf(isLabel), " ") + "\n", "missing": missing.String()}
}

func namesOf(which func(*field.Descriptor) bool) (out []string) {
	for _, d := range field.All() {
		if which(d) {
			out = append(out, "`"+d.Name+"`")
		}
	}
	return out
}

// Reasons why the collector does not supply a field of the catalogue.
const (
	whyBinary = "binary, which no page can show"
	whyVGPU   = "of virtual GPUs, which are not looked for"
	whyNVML   = "read through NVML alone: DCGM has no such field"
)

// reasonOf returns why the collector does not supply a field. It returns "" if it does, and for fields of other vendors.
func reasonOf(d *field.Descriptor) string {
	_, foreign := collector.ForeignReading(d, field.VendorNVIDIA)
	switch {
	case foreign, d.Factor != 0, d.Kind == field.None, d.Event, Supplies(d):
		return ""
	case d.ID >= field.FirstExporter:
		return whyNVML
	case d.Level == field.VGPU:
		return whyVGPU
	case d.Kind == field.Binary:
		return whyBinary
	}
	return ""
}
