package selfmetrics

import (
	"fmt"
	"io"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// WriteMarkdown writes a table of the families, sorted by name: name, type,
// labels and help. A family is known by its series, so those of a vector
// without any are not in a gathering and not in the table.
func WriteMarkdown(w io.Writer, families []*dto.MetricFamily) error {
	families = slices.Clone(families)
	slices.SortFunc(families, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	out := []byte("| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n")
	for _, f := range families {
		out = fmt.Appendf(out, "| `%s` | %s | %s | %s |\n",
			f.GetName(), strings.ToLower(f.GetType().String()), labelCell(f), cellText.Replace(f.GetHelp()))
	}
	if _, err := w.Write(out); err != nil {
		return fmt.Errorf("write table of metrics: %w", err)
	}
	return nil
}

// cellText keeps a text inside its cell.
var cellText = strings.NewReplacer("|", `\|`, "\n", " ", "\r", "")

// labelCell lists the names of all labels of the family's series.
func labelCell(f *dto.MetricFamily) string {
	var names []string
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			names = append(names, "`"+l.GetName()+"`")
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}
