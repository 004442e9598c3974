package dcgm

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"warpgauge/internal/testkit/golden"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

//go:generate go test -run ^TestMarkdownIsCurrent$ . -args -update

// TestMarkdownIsCurrent checks that docs/dcgm.md has the catalogue's current tables and names each field once: as a
// reading, as a label, as a part, or with the reason why it is missing. -update rewrites the page.
func TestMarkdownIsCurrent(t *testing.T) {
	const path = "../../docs/dcgm.md"
	want := markdown(t, path)
	golden.Check(t, path, want)
	_, text, _ := strings.Cut(want, "\n| Id |")
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
		if rows != want {
			t.Errorf("%s is there %d times, want %d", d.Name, rows, want)
		}
	}
}

// markdown returns docs/dcgm.md with new tables of readings, labels and missing fields. The rest of the page is written by
// hand.
func markdown(t *testing.T, path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var readings, absent strings.Builder
	for _, d := range field.All() {
		if isReading(d) {
			fmt.Fprintf(&readings, "| %d | `%s` | %s | %s | %s | %s |\n", d.ID, d.Name, d.Level, d.Kind, d.Unit, d.Cost)
		}
	}
	for _, why := range reasons() {
		if names := namesOf(func(d *field.Descriptor) bool { return missing(d) == why }); len(names) > 0 {
			fmt.Fprintf(&absent, "| %s | %s |\n", strings.Join(names, " "), why)
		}
	}
	page := string(text)
	for _, part := range []struct{ begin, end, text string }{
		{"| Id | Field | Level | Value | Unit | Cost |\n|---:|---|---|---|---|---|\n", "\nNames in base units", readings.String()},
		{"read from the driver when devices are looked for:\n\n", "\n## Profiling", strings.Join(namesOf(isLabel), " ") + "\n"},
		{"| Fields | Why |\n|---|---|\n", "", absent.String()},
	} {
		before, rest, found := strings.Cut(page, part.begin)
		end := strings.Index(rest, part.end)
		if part.end == "" {
			end = len(rest)
		}
		if !found || end < 0 {
			t.Fatalf("%s has no %q", path, part.begin)
		}
		page = before + part.begin + part.text + rest[end:]
	}
	return page
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

func reasons() []string {
	return []string{whyBinary, whyVGPU, whyNVML}
}

// missing returns why the collector does not supply a field. It returns "" if it does, and for fields of other vendors.
func missing(d *field.Descriptor) string {
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
