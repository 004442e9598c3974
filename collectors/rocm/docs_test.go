package rocm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/golden"
	"warpgauge/pkg/field"
)

//go:generate go test -run ^TestMarkdownIsCurrent$ . -args -update

// TestMarkdownIsCurrent checks the tables of docs/rocm.md against the collector's. -update rewrites the page.
func TestMarkdownIsCurrent(t *testing.T) {
	testkit.Lacks(t, "a source without a name", golden.Fill(t, "../../docs/rocm.md", tables()), "``")
}

// tables returns the tables of the page, by the name of their section.
func tables() map[string]string {
	specs, out := everySpec(), map[string]string{}
	for i, name := range []string{"gpu", "partition", "link"} {
		out[name] = table(specs[i])
	}
	return out
}

// table has a row for the columns of a field that have the same sources.
func table(specs []spec) string {
	type row struct {
		id      field.ID
		values  []string // of the columns, as name=value
		sources string
	}
	var rows []row
	for _, s := range specs {
		r := row{s.field, nil, sourcesOf(&s)}
		at := slices.IndexFunc(rows, func(o row) bool { return o.id == r.id && o.sources == r.sources })
		if at < 0 {
			at = len(rows)
			rows = append(rows, r)
		}
		if labels := text(s.labels); labels != "" {
			rows[at].values = append(rows[at].values, "`"+labels+"`")
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.id, b.id) })
	var b strings.Builder
	b.WriteString("| Field | Unit | Labels | From | Function of ROCm SMI |\n|---|---|---|---|---|\n")
	for _, r := range rows {
		d, _ := field.ByID(r.id)
		shown := r.values
		if len(shown) > 4 {
			shown = []string{shown[0], "…", shown[len(shown)-1]}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", d.Name, d.Unit, strings.Join(shown, " "), r.sources)
	}
	return b.String()
}

// sourcesOf returns the cells with the files of a column and the functions that ROCm SMI reads it with.
func sourcesOf(s *spec) string {
	from := "`" + strings.Join(s.files(), "`, `") + "`"
	switch s.terms[0].op {
	case opFixed:
		from = "known at start"
	case opRecord:
		from = "`amdsmi_get_gpu_cper_entries`"
	}
	var functions []string
	for _, t := range s.terms {
		for _, r := range t.raw {
			if q, ok := smiAskFor(r); ok {
				functions = append(functions, "`"+smiFunctions[q.function].Name+"`")
			}
		}
	}
	slices.Sort(functions)
	return from + " | " + strings.Join(slices.Compact(functions), ", ")
}
