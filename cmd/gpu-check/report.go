package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// banner says that nothing of this is a measurement.
const banner = "SIMULATED GPUs: this shows that the check works, nothing about any GPU"

// table is a part of the report. Cells of a row end with tabs; names of the program's own things stand in backquotes.
type table struct {
	align, head string // of Markdown
	rows        []string
}

// tables returns the comparisons, the calls and the processor time.
func (r *record) tables(all bool) [3]table {
	compared := table{align: "---|---|---|---|---|---|---", head: "Phase\tGPU\tField\twarpgauge\tnvidia-smi\tTolerance\tVerdict"}
	for _, x := range lines(r.results, all) {
		phase, _, _ := strings.Cut(x.phase, " ")
		compared.rows = append(compared.rows, strings.Join([]string{phase, x.gpu, "`" + x.metric + "`", x.ours, x.theirs, x.tolerance, string(x.verdict)}, "\t"))
	}
	calls := table{align: "---|---:|---:", head: "Library call\tEach\tIn an hour"}
	for _, c := range r.costs {
		calls.rows = append(calls.rows, fmt.Sprintf("`%s`\t%s\t%.3f s", c.call, round3(c.perCall), c.perHour))
	}
	cpu := table{align: "---|---:|---:", head: "Interval\tCPU of one core\tMemory"}
	for _, u := range r.cpu {
		cpu.rows = append(cpu.rows, fmt.Sprintf("%v\t%.2f %%\t%.0f MiB", u.every, u.percent, u.memory/(1<<20)))
	}
	return [3]table{compared, calls, cpu}
}

// printReport writes the report for people.
func printReport(out io.Writer, r *record, all bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) } // Flush has the error
	line("")
	if r.simulated {
		line("%s", banner)
	}
	for _, g := range r.gpus {
		line("GPU %s: %s, %s, driver %s", g.index, g.name, g.pci, r.driver)
	}
	for _, t := range r.tables(all) {
		line("\n%s", strings.ToUpper(t.head))
		for _, row := range t.rows {
			line("%s", strings.ReplaceAll(row, "`", ""))
		}
	}
	for _, l := range r.loads {
		line("\n%s", l.text(r.simulated))
	}
	for _, n := range r.notes {
		line("\nnote: %s", n)
	}
	for _, l := range r.notCompared() {
		line("\nnot compared, %s", l)
	}
	line("\n%s", r.summary())
	if r.simulated {
		line("%s", banner)
	}
	return w.Flush()
}

// text tells what was reached, which is the CPU's work where GPUs are simulated.
func (l loadResult) text(simulated bool) string {
	switch {
	case l.err != nil:
		return fmt.Sprintf("GPU %s, %s: FAIL: %v", l.gpu, l.kernel, l.err)
	case simulated:
		return fmt.Sprintf("GPU %s, %s: product right", l.gpu, l.kernel)
	}
	return fmt.Sprintf("GPU %s, %s: %.4g TFLOP/s, product right", l.gpu, l.kernel, l.teraflop)
}

// lines returns the results worth a line each. A result that all GPUs share is one line,
// with the first GPU's values. Metrics without a counterpart in nvidia-smi are left out.
// With all, every result has a line.
func lines(results []result, all bool) (out []result) {
	if all {
		return results
	}
	type key struct{ phase, metric, tolerance string }
	bad, first := make(map[key]bool), make(map[key]int)
	for _, x := range results {
		k := key{x.phase, x.metric, x.tolerance}
		bad[k] = bad[k] || x.verdict.bad()
	}
	for _, x := range results {
		k := key{x.phase, x.metric, x.tolerance}
		at, known := first[k]
		switch {
		case x.verdict == uncomparing:
		case bad[k]:
			out = append(out, x)
		case known:
			from, _, _ := strings.Cut(out[at].gpu, "…")
			out[at].gpu = from + "…" + x.gpu
		default:
			first[k] = len(out)
			out = append(out, x)
		}
	}
	return out
}

// notCompared says what was not, and why.
func (r *record) notCompared() []string {
	var out []string
	for _, what := range sorted(r.silent) {
		text, _, _ := strings.Cut(strings.TrimSpace(r.silent[what].Error()), "\n")
		out = append(out, fmt.Sprintf("nvidia-smi %s fails: %s", what, text))
	}
	for _, why := range []struct {
		verdict verdict
		text    string
	}{{oursAlone, "nvidia-smi has no value: "}, {uncomparing, "nvidia-smi has no counterpart: "}} {
		names := map[string]bool{}
		for _, x := range r.results {
			if x.verdict == why.verdict {
				names[x.metric] = true
			}
		}
		if len(names) > 0 {
			out = append(out, why.text+strings.Join(sorted(names), ", "))
		}
	}
	return out
}

func round3(d time.Duration) time.Duration {
	switch {
	case d > time.Millisecond:
		return d.Round(10 * time.Microsecond)
	case d > time.Microsecond:
		return d.Round(10 * time.Nanosecond)
	}
	return d
}

// summary counts the verdicts.
func (r *record) summary() string {
	count := make(map[verdict]int)
	for _, x := range r.results {
		count[x.verdict]++
	}
	verdict := "PASS"
	if n := r.failed(); n > 0 {
		verdict = fmt.Sprintf("FAIL (%d)", n)
	}
	return fmt.Sprintf("%s: %d agree, %d differ, %d not there, %d only ours, %d without counterpart in nvidia-smi",
		verdict, count[pass], count[fail], count[missing], count[oursAlone], count[uncomparing])
}

// writeMarkdown writes a section for docs/verified.md.
func writeMarkdown(out io.Writer, r *record) error {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	title := fmt.Sprintf("%d × %s, driver %s, %s", len(r.gpus), r.gpus[0].name, r.driver, r.when.Format(time.DateOnly))
	if r.simulated {
		title += " (simulated)"
	}
	line("## %s\n", title)
	if r.simulated {
		line("**%s.**\n", banner)
	}
	line("%s. On %s/%s.\n", r.summary(), runtime.GOOS, runtime.GOARCH)
	for _, l := range r.loads {
		line("* %s", l.text(r.simulated))
	}
	for _, n := range r.notes {
		line("* %s", n)
	}
	for _, l := range r.notCompared() {
		line("* Not compared, %s", l)
	}
	tables := r.tables(false)
	for _, t := range slices.Backward(tables[:]) {
		line("\n| %s |\n|%s|", strings.ReplaceAll(t.head, "\t", " | "), t.align)
		for _, row := range t.rows {
			line("| %s |", strings.ReplaceAll(row, "\t", " | "))
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}
