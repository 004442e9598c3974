//go:build linux && cgo

package nvml

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/golden"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

//go:generate go test -run ^TestMarkdownIsCurrent$ . -args -update

// TestMarkdownIsCurrent compares docs/nvml.md with the collector's tables, which must name each number of the
// catalogue that NVIDIA's GPUs can have. Rewrite the page with -update.
func TestMarkdownIsCurrent(t *testing.T) {
	const path = "../../docs/nvml.md"
	page := testkit.Get(os.ReadFile(path))(t)
	want := markdown(string(page))
	golden.Check(t, path, want)
	for _, d := range field.All() {
		number := d.Kind == field.Int64 || d.Kind == field.Double
		_, foreign := collector.ForeignReading(d, field.VendorNVIDIA)
		testkit.ErrorIf(t, !foreign && number && d.Factor == 0 && !strings.Contains(want, "`"+d.Name+"`"), "docs/nvml.md does not name %s", d.Name)
	}
}

// markdown returns the page with two of its tables and its list of labels filled from the collector.
func markdown(page string) string {
	var b strings.Builder
	generated := map[string]func(*strings.Builder){
		"| Id | Field | Level | Call | Conversion | Unit | GPUs | Cost | Remark |": readingRows,
		"| Id | Field | Metric | Conversion | Unit |":                              profilingRows,
	}
	var rows func(*strings.Builder) // writes the current table's rows; nil keeps the page's rows
	for line := range strings.Lines(page) {
		trimmed := strings.TrimSpace(line)
		switch inTable := strings.HasPrefix(line, "|"); {
		case !inTable:
			rows = nil
			if strings.HasPrefix(line, "`"+descriptor(textFacts[0].id).Name+"`") {
				line = labelList()
			}
		case generated[trimmed] != nil:
			rows = generated[trimmed]
		case rows != nil && strings.Trim(trimmed, "|:-") == "":
			b.WriteString(line)
			rows(&b)
			continue
		case rows != nil:
			continue
		}
		b.WriteString(line)
	}
	return b.String()
}

func labelList() string {
	var labels []string
	for _, f := range textFacts {
		labels = append(labels, "`"+descriptor(f.id).Name+"`")
	}
	return strings.Join(labels, " ") + "\n"
}

func readingRows(b *strings.Builder) {
	rows := slices.Clone(allReadings())
	slices.SortStableFunc(rows, func(a, b reading) int { return int(a.id) - int(b.id) })
	for _, r := range rows {
		d, label := descriptor(r.id), ""
		if r.label.Name != "" {
			label = fmt.Sprintf(" %s=%q", r.label.Name, r.label.Value)
		}
		fmt.Fprintf(b, "| %d | `%s`%s | %s | %s | %s | %s | %s | %s | %s |\n", d.ID, d.Name, label, levelText(r.levelOf()), callText(&r), conversionText(&r, d),
			d.Unit, r.boards, d.Cost, r.note)
	}
}

func profilingRows(b *strings.Builder) {
	for _, id := range slices.Sorted(maps.Keys(profilings())) {
		p := profilings()[id]
		d, metric, conversion := descriptor(id), strconv.Itoa(int(p.metric)), ""
		if p.perLink {
			metric += " …"
		}
		if p.scale != 1 {
			conversion = "× " + plain(p.scale)
		}
		fmt.Fprintf(b, "| %d | `%s` | %s | %s | %s |\n", d.ID, d.Name, metric, conversion, d.Unit)
	}
}

func descriptor(id field.ID) *field.Descriptor {
	d, ok := field.ByID(id)
	if !ok {
		panic("nvml: the catalogue lacks field " + strconv.Itoa(int(id)))
	}
	return d
}

// levelText names the devices that have a reading.
func levelText(l field.Level) string {
	if l == field.Instance {
		return "gpu, instance"
	}
	return l.String()
}

// callText names a reading's calls, each once, with their arguments.
func callText(r *reading) string {
	var out []string
	for _, t := range r.terms {
		if s := termText(t); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	const few = 2
	if len(out) > few {
		return out[0] + " … " + out[len(out)-1]
	}
	return strings.Join(out, " + ")
}

func termText(t term) string {
	if t.call == getFieldValues {
		return "field " + strconv.Itoa(int(t.arg[0])) + scopeText(t.arg[1])
	}
	var names []string
	for _, g := range *t.call {
		names = append(names, "`"+g.symbol+"`")
	}
	text := strings.Join(names, " or ")
	switch (*t.call)[0].args {
	case 1:
		text += fmt.Sprintf(" (%d)", t.arg[0])
	case 2: // a field and its link
		text += fmt.Sprintf(" (%s, %d)", strings.TrimPrefix(scopeText(t.arg[0]), " of "), t.arg[1])
	case 3:
		text += fmt.Sprintf(" (%d, %d, %d)", t.arg[0], t.arg[1], t.arg[2])
	}
	return text
}

func scopeText(scope uint32) string {
	switch scope {
	case 0:
		return ""
	case AllLinks:
		return " of all links"
	case ThisLink:
		return " of the link"
	}
	return " of link " + strconv.Itoa(int(scope))
}

// conversionText describes the conversion of NVML's value.
func conversionText(r *reading, d *field.Descriptor) string {
	text, factor := string(r.how), ""
	switch {
	case text == "" && len(r.terms) > 1:
		text = "sum"
	case strings.HasPrefix(text, "growth per second"): // callText names the counter's width
		text = "growth per second"
	case strings.HasPrefix(text, "used ÷") && len(r.terms) == 2:
		text = "used ÷ total"
	}
	if r.mul != 0 {
		factor += "× " + plain(r.mul) + " "
	}
	if r.div != 0 {
		factor += "÷ " + plain(r.div) + " "
	}
	if factor = strings.TrimSpace(factor); factor != "" && text != "" {
		text += ", "
	}
	text += factor
	if r.div != 0 && d.Kind == field.Int64 {
		text += ", whole"
	}
	return text
}

func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
