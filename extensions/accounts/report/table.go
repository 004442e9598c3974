package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"warpgauge/pkg/config"
)

const (
	maxWidth  = 100 // columns
	maxCauses = 3   // of throttling
)

// WriteTable writes the report for people, at most 100 columns wide. The judgement is the last line.
func (r *Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	r.writeSummary(t)
	r.Total.write(t)
	r.writeBoards(t)
	_ = t.Flush() // a Builder cannot fail
	before := "\n"
	for i := range r.Boards {
		for _, v := range r.Boards[i].Verdicts {
			fmt.Fprintf(&b, "%s%s  %s GPU %s: %s\n", before, stamp(v.Time), clip(r.Boards[i].Node, 18), clip(r.Boards[i].GPU, 4), clip(v.Text, maxWidth))
			before = ""
		}
	}
	fmt.Fprintf(&b, "\n%s\n", clip(r.Judgement, maxWidth))
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(w, clip(strings.TrimRight(line, " \n"), maxWidth)); err != nil {
			return err
		}
	}
	return nil
}

// Line returns the judgement with the most important figures, at most a kilobyte.
func (r *Report) Line() string {
	return fmt.Sprintf("%s; energy %s, GPU time %s", clip(strings.TrimSuffix(r.Judgement, "."), 200), joules(r.Total.Energy), span(r.Total.GPUSeconds))
}

func (r *Report) writeSummary(w *tabwriter.Writer) {
	name := strings.TrimSpace(r.Kind + " " + r.Job)
	if r.Kind == KindPod {
		name = "pod " + r.Namespace + "/" + r.Pod
	}
	where, until := "no node", "now"
	if len(r.Nodes) == 1 {
		where = r.Nodes[0]
	} else if len(r.Nodes) > 1 {
		where = config.Counted(len(r.Nodes), "node")
	}
	if r.Left != nil {
		until = stamp(*r.Left)
	}
	fmt.Fprintf(w, "%s on %s: %s for %s\n", clip(name, 50), clip(where, 18), config.Counted(r.GPUs, "GPU"), span(r.Seconds(time.Now())))
	fmt.Fprintf(w, "%s to %s UTC\n\n", stamp(r.Came), until)
	models := map[string]bool{}
	for i := range r.Boards {
		models[cmp.Or(r.Boards[i].Model, "unknown")] = true
	}
	fmt.Fprintf(w, "model\t%s\n", clip(strings.Join(slices.Sorted(maps.Keys(models)), ", "), 80))
}

// write writes what was used of all boards.
func (u *Use) write(w *tabwriter.Writer) {
	line := func(name string, parts ...string) {
		if parts = slices.DeleteFunc(parts, func(p string) bool { return p == "" }); len(parts) > 0 {
			fmt.Fprintf(w, "%s\t%s\n", name, strings.Join(parts, ", "))
		}
	}
	part := func(v float64, format func(float64) string, what string) string {
		if v <= 0 {
			return ""
		}
		return format(v) + " " + what
	}
	line("energy", joules(u.Energy), part(u.IdleEnergy, joules, "of it idle"))
	line("estimated", part(u.FromPower, joules, "from power"), part(u.Methods["activity"], joules, "by activity"),
		part(u.Methods["slices"], joules, "by size of instances"), part(u.Methods["equal"], joules, "in equal parts"))
	line("GPU time", span(u.GPUSeconds))
	var spent, causes []string
	for _, kind := range Kinds {
		if share := u.Spent[kind] / u.GPUSeconds; share >= 0.0005 {
			spent = append(spent, kind+" "+percent(share))
		}
	}
	line("spent on", spent...)
	for _, cause := range slices.SortedFunc(maps.Keys(u.Throttled), func(a, b string) int {
		return cmp.Or(cmp.Compare(u.Throttled[b], u.Throttled[a]), cmp.Compare(a, b))
	}) {
		if len(causes) < maxCauses {
			causes = append(causes, clip(cause, 18)+" "+span(u.Throttled[cause]))
		}
	}
	line("throttled", causes...)
	if u.Memory != nil && u.MemorySize != nil {
		line("memory", fmt.Sprintf("%s of %s at the peak", gibibytes(u.Memory), gibibytes(u.MemorySize)))
	}
	line("XIDs", fmt.Sprint(u.XIDs))
	if u.Unused != nil {
		line("unused", "for "+span(*u.Unused))
	}
	title := "\n\tMEAN\tP50\tP95\tMAX\n"
	for _, s := range []struct {
		name string
		*Spread
	}{{"utilization", u.Busy}, {"tensor activity", u.Tensor}, {"OFU", u.OFU}} {
		if s.Spread != nil {
			fmt.Fprintf(w, "%s%s\t%s\t%s\t%s\t%s\n", title, s.name, percent(s.Mean), percent(s.P50), percent(s.P95), percent(s.Max))
			title = ""
		}
	}
}

func (r *Report) writeBoards(w *tabwriter.Writer) {
	fmt.Fprintln(w, "\nNODE\tGPU\tCONTAINER\tTIME\tENERGY\tUTIL\tTENSOR\tOFU\tMEMORY\tXIDS")
	for i := range r.Boards {
		b := &r.Boards[i]
		cells := []string{
			clip(b.Node, 18), clip(b.GPU, 4), cmp.Or(clip(b.Container, 12), "-"), span(b.GPUSeconds), joules(b.Energy),
			b.Busy.mean(), b.Tensor.mean(), b.OFU.mean(), gibibytes(b.Memory), fmt.Sprint(b.XIDs),
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
}

// mean returns the mean as text.
func (s *Spread) mean() string {
	if s == nil {
		return "-"
	}
	return percent(s.Mean)
}

// clip returns at most n characters of a text that others have chosen.
func clip(s string, n int) string {
	r := []rune(config.OneLine(s[:min(len(s), 4*n)]))
	if len(r) <= n {
		return string(r)
	}
	return string(r[:n-1]) + "…"
}

func stamp(t time.Time) string { return t.UTC().Format(time.DateTime) }

func percent(share float64) string {
	if share < 0.095 {
		return fmt.Sprintf("%.1g %%", 100*max(share, 0))
	}
	return figures(100*share) + " %"
}

func gibibytes(v *float64) string {
	if v == nil {
		return "-"
	}
	return figures(*v/(1<<30)) + " GiB"
}

// joules returns an energy as text.
func joules(v float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{3.6e9, "MWh"}, {3.6e6, "kWh"}, {3.6e3, "Wh"}} {
		if v >= u.size {
			return figures(v/u.size) + " " + u.name
		}
	}
	return figures(v) + " J"
}

// span returns a time in seconds as text.
func span(v float64) string {
	switch {
	case v < 60:
		return figures(max(v, 0)) + " s"
	case v < 3600:
		return fmt.Sprintf("%d min %d s", int(v)/60, int(v)%60)
	case v < 1e9:
		return fmt.Sprintf("%d h %d min", int(v)/3600, int(v)/60%60)
	}
	return figures(v/3600) + " h"
}

// figures returns a number with at most three digits after its first.
func figures(v float64) string {
	switch {
	case v >= 1e6 || v <= -1e6:
		return fmt.Sprintf("%.3g", v)
	case v >= 10:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
