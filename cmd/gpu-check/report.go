package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report is the result of a run.
type report struct {
	when      time.Time
	gpus      []gpu
	driver    string
	results   []result
	alone     map[string]bool // families without a counterpart in nvidia-smi
	simulated bool
}

func (r *report) add(g gpu, results ...result) {
	for _, x := range results {
		x.gpu = fmt.Sprint(g.index)
		r.results = append(r.results, x)
	}
}

func (r *report) leaveOut(names map[string]bool) {
	if r.alone == nil {
		r.alone = map[string]bool{}
	}
	maps.Copy(r.alone, names)
}

func (r *report) count(v ...verdict) (n int) {
	for _, x := range r.results {
		if slices.Contains(v, x.verdict) {
			n++
		}
	}
	return n
}

func (r *report) failed() int { return r.count(fail, missing) }

// banner says that the values are not measurements.
const banner = "SIMULATED GPUs: this shows that the check works, nothing about any GPU"

// print writes the report as Markdown. GPUs with the same good result share one line, with the first GPU's values.
func (r *report) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) } // Flush has the error
	title := fmt.Sprintf("%d × %s, driver %s, %s", len(r.gpus), r.gpus[0].name, r.driver, r.when.Format(time.DateOnly))
	if r.simulated {
		title += " (" + banner + ")"
	}
	line("## %s\n", title)
	row := func(cells ...string) { line("| %s\t|", strings.Join(cells, "\t| ")) }
	row("GPU", "Field", "warpgauge", "nvidia-smi", "Tolerance", "Verdict")
	row("---", "---", "---", "---", "---", "---")
	seen := map[string]bool{}
	for _, x := range r.results {
		if seen[x.metric] && !x.verdict.bad() {
			continue
		}
		seen[x.metric] = seen[x.metric] || !x.verdict.bad()
		row(x.gpu, x.metric, x.ours, x.theirs, x.tolerance, string(x.verdict))
	}
	line("\nNo counterpart in nvidia-smi: %s.\n", strings.Join(slices.Sorted(maps.Keys(r.alone)), ", "))
	verdict := "PASS"
	if n := r.failed(); n > 0 {
		verdict = fmt.Sprintf("FAIL (%d)", n)
	}
	line("%s: %d agree, %d differ, %d not there, %d only ours", verdict, r.count(pass), r.count(fail), r.count(missing), r.count(oursAlone))
	return w.Flush()
}
