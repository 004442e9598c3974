package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	dto "github.com/prometheus/client_model/go"
	"github.com/urfave/cli/v3"

	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
)

func compareCommand(a *app) *cli.Command {
	return &cli.Command{
		Name:      "compare",
		Usage:     "Compare two pages of one node, as for a move from dcgm-exporter",
		ArgsUsage: "OLD NEW",
		Description: `OLD and NEW are addresses of pages, files in the text format, or - for standard input.
It matches DCGM_ families by the measured quantity, so names of DCGM 4.6 and older
match the names of 4.7, and compares values in the old unit. It matches series by
device, instance, link and the labels that only some families have, and lists values
that differ by more than the tolerance. It skips families about the exporters
themselves.

Exit code 0: NEW has everything of OLD. 1: something is missing or differs.
2: a page is not readable, or a flag is wrong.`,
		OnUsageError: func(ctx context.Context, cmd *cli.Command, err error, sub bool) error {
			return &config.ExitError{Code: 2, Err: config.UsageError(ctx, cmd, err, sub)}
		},
		Flags: append([]cli.Flag{
			&cli.FloatFlag{Name: "tolerance", Value: 0.1, Usage: "Largest accepted difference of two values, as a share of the larger one."},
			config.OutputFlag(),
		}, config.TrustFlags()...), // the arguments OLD and NEW replace --url
		Action: func(ctx context.Context, cmd *cli.Command) error {
			c, err := compare(ctx, a, cmd)
			switch {
			case err != nil:
				return &config.ExitError{Code: 2, Err: err}
			case c.bad():
				return config.ErrReported
			}
			return nil
		},
	}
}

// compare reads both pages and prints the comparison.
func compare(ctx context.Context, a *app, cmd *cli.Command) (*comparison, error) {
	tolerance := cmd.Float("tolerance")
	switch {
	case cmd.Args().Len() != 2:
		return nil, errors.New("compare takes two pages, OLD and NEW; see warpctl compare --help")
	case !(tolerance >= 0 && tolerance < 1):
		return nil, fmt.Errorf("--tolerance is %v: write a number from 0 to less than 1", tolerance)
	}
	trust, err := config.Trust(ctx, cmd)
	if err != nil {
		return nil, err
	}
	var pages [2]map[string]*dto.MetricFamily
	for i, name := range cmd.Args().Slice() {
		if pages[i], err = config.ReadPage(ctx, name, os.Stdin, trust); err != nil {
			return nil, err
		}
	}
	c := comparePages(pages[0], pages[1], tolerance)
	return c, config.WriteOutput(a.out, cmd.String("output"), c, c.writeTable)
}

// comparison holds the differences between two pages of a node.
type comparison struct {
	Findings []finding `json:"findings"`
	Series   int       `json:"series"` // on the old page
	Same     int       `json:"same"`   // unchanged series
}

// finding is one difference.
type finding struct {
	Kind    findingKind `json:"kind"`
	Old     string      `json:"old,omitempty"` // family, label or series of the old page
	New     string      `json:"new,omitempty"`
	Values  string      `json:"values,omitempty"` // old -> new, in the old page's unit
	Meaning string      `json:"meaning"`
}

type findingKind string

// Kinds of findings, in their order in the output.
const (
	familyMissing findingKind = "family missing"
	seriesMissing findingKind = "series missing"
	valueDiffers  findingKind = "value differs"
	typeDiffers   findingKind = "type differs"
	labelMissing  findingKind = "label missing"
	familyRenamed findingKind = "family renamed"
	labelRenamed  findingKind = "label renamed"
)

var findingOrder = []findingKind{familyMissing, seriesMissing, valueDiffers, typeDiffers, labelMissing, familyRenamed, labelRenamed}

// bad reports whether dashboards and alerts for the old page would lose something.
func (c *comparison) bad() bool {
	return c.Series == 0 || slices.ContainsFunc(c.Findings, func(f finding) bool { return f.Kind != familyRenamed && f.Kind != labelRenamed })
}

// quantity is a family of a page with the unit of its values.
type quantity struct {
	family *dto.MetricFamily
	scale  float64 // unit of the values divided by the reading's unit
	series map[string][]*dto.Metric
}

// quantities returns the DCGM families of a page by name.
func quantities(page map[string]*dto.MetricFamily) map[string]*quantity {
	out := map[string]*quantity{}
	for name, family := range page {
		if !strings.HasPrefix(name, "DCGM_") && !strings.HasPrefix(name, "dcgm_") {
			continue
		}
		q := &quantity{family: family, scale: 1, series: map[string][]*dto.Metric{}}
		if _, scale, ok := field.ByName(name); ok {
			q.scale = scale
		}
		for _, m := range family.GetMetric() {
			id := seriesKey(m)
			q.series[id] = append(q.series[id], m)
		}
		out[name] = q
	}
	return out
}

// readingOf returns the name of the reading behind a family or label, without its unit.
func readingOf(name string) string {
	if d, _, ok := field.ByName(name); ok {
		return d.Name
	}
	return name
}

// renamed returns the first of others with the same meaning as name, or "".
func renamed(name string, others []string) string {
	i := slices.IndexFunc(others, func(o string) bool { return readingOf(o) == readingOf(name) })
	if i < 0 {
		return ""
	}
	return others[i]
}

// identity lists the labels that identify a device or a series of it. Other labels are descriptions.
var identity = []string{
	"UUID", "GPU_I_ID", "nvlink", "nvswitch", "cpu", "cpucore", "connectx", "xid",
	"clock_event", "health_watch", "peer_gpu", "vgpu", "pod_uid",
}

func seriesKey(m *dto.Metric) string {
	values := map[string]string{}
	for _, l := range m.GetLabel() {
		name := l.GetName()
		if name == "uuid" || name == "gpu_uuid" {
			name = "UUID"
		}
		values[name] = l.GetValue()
	}
	var parts []string
	for _, name := range identity {
		if v, ok := values[name]; ok {
			parts = append(parts, name+"="+strconv.Quote(v))
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func comparePages(oldPage, newPage map[string]*dto.MetricFamily, tolerance float64) *comparison {
	c := &comparison{Findings: []finding{}}
	olds, news := quantities(oldPage), quantities(newPage)
	newNames := slices.Sorted(maps.Keys(news))
	for _, name := range slices.Sorted(maps.Keys(olds)) {
		o, n := olds[name], news[name]
		if n == nil {
			n = news[renamed(name, newNames)]
		}
		c.Series += len(o.family.GetMetric())
		if n == nil {
			c.add(finding{Kind: familyMissing, Old: name, Meaning: whyMissing(o)})
			continue
		}
		c.compareFamilies(o, n, tolerance)
	}
	c.compareLabels(labelNames(olds), labelNames(news))
	slices.SortStableFunc(c.Findings, func(a, b finding) int {
		return cmp.Compare(slices.Index(findingOrder, a.Kind), slices.Index(findingOrder, b.Kind))
	})
	return c
}

func (c *comparison) add(f finding) { c.Findings = append(c.Findings, f) }

func (c *comparison) compareFamilies(o, n *quantity, tolerance float64) {
	oldName, newName := o.family.GetName(), n.family.GetName()
	if oldName != newName {
		meaning := "the same in the same unit: queries need the new name"
		if o.scale != n.scale {
			meaning = fmt.Sprintf("the same in another unit: new value = old value × %v; queries and thresholds change", n.scale/o.scale)
		}
		c.add(finding{Kind: familyRenamed, Old: oldName, New: newName, Meaning: meaning})
	}
	if o.family.GetType() != n.family.GetType() {
		c.add(finding{
			Kind: typeDiffers, Old: oldName, New: newName,
			Values:  strings.ToLower(o.family.GetType().String() + " -> " + n.family.GetType().String()),
			Meaning: "rate() and histogram_quantile() depend on it: write the old type in the list",
		})
	}
	if percent := "in %"; oldName == utilRatio && strings.Contains(o.family.GetHelp(), percent) && !strings.Contains(n.family.GetHelp(), percent) {
		c.add(finding{Kind: valueDiffers, Old: oldName, New: newName, Values: "percent -> ratio", Meaning: percentAsRatio}) // also while both are 0
	}
	for _, id := range slices.Sorted(maps.Keys(o.series)) {
		om, nm := o.series[id], n.series[id]
		if len(nm) == 0 {
			c.add(finding{Kind: seriesMissing, Old: oldName + id, Meaning: whyMissing(&quantity{family: o.family, series: map[string][]*dto.Metric{id: om}})})
			continue
		}
		c.compareSeries(o, n, id, tolerance)
	}
}

// compareSeries compares the series of one device. Series with the same identity, such as two pods
// on a GPU, are compared in the order of their values.
func (c *comparison) compareSeries(o, n *quantity, id string, tolerance float64) {
	olds, news := sortedValues(o.series[id], 1), sortedValues(n.series[id], o.scale/n.scale)
	if len(olds) != len(news) {
		c.add(finding{
			Kind: valueDiffers, Old: o.family.GetName() + id, New: n.family.GetName() + id,
			Values: fmt.Sprintf("%d series -> %d series", len(olds), len(news)), Meaning: "one per pod or process on one page only: see the options for shared GPUs",
		})
		return
	}
	for i := range olds {
		if near(olds[i], news[i], tolerance) {
			c.Same++
			continue
		}
		c.add(finding{
			Kind: valueDiffers, Old: o.family.GetName() + id, New: n.family.GetName() + id,
			Values: fmt.Sprintf("%v -> %v", olds[i], news[i]), Meaning: whyDifferent(o.family, olds[i]),
		})
	}
}

// sortedValues returns the scaled values of series in ascending order. Histograms have no comparable values.
func sortedValues(series []*dto.Metric, scale float64) []float64 {
	var out []float64
	for _, m := range series {
		switch {
		case m.GetGauge() != nil:
			out = append(out, m.GetGauge().GetValue()*scale)
		case m.GetCounter() != nil:
			out = append(out, m.GetCounter().GetValue()*scale)
		case m.GetUntyped() != nil:
			out = append(out, m.GetUntyped().GetValue()*scale)
		default:
			out = append(out, math.NaN())
		}
	}
	slices.Sort(out)
	return out
}

func near(a, b, tolerance float64) bool {
	return a == b || math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= tolerance*max(math.Abs(a), math.Abs(b))
}

// isBlank reports whether a value is one of DCGM's blanks (dcgm_structs.h:
// DCGM_INT32_BLANK, DCGM_INT64_BLANK, DCGM_FP64_BLANK and the values after them).
func isBlank(v float64) bool {
	return v >= 0x7ffffff0 && v <= 0x7fffffff || v >= 0x7ffffffffffffff0 || v == 140737488355328
}

// whyMissing explains a family or series that the new page lacks.
func whyMissing(q *quantity) string {
	zero := true
	for _, series := range q.series {
		for _, v := range sortedValues(series, 1) {
			switch {
			case isBlank(v):
				return "the old page shows a blank of DCGM as a number; a value that is not known is left out here"
			case v != 0:
				zero = false
			}
		}
	}
	name := q.family.GetName()
	switch {
	case strings.HasPrefix(name, "DCGM_FI_PROF_"):
		return "profiling: not in the new list, or no source supplies it: warpgauge check, warpgauge devices"
	case strings.HasPrefix(name, "DCGM_EXP_"):
		return "counts are there when something has been counted: docs/compatibility.md"
	case zero:
		return "0 on the old page may be an error shown as 0; here it is left out: warpgauge check says whether the device supplies it"
	}
	return "not in the new list, or not supplied: warpgauge check -f LIST"
}

const (
	utilRatio      = "DCGM_FI_DEV_GPU_UTIL_RATIO"
	percentAsRatio = "dcgm-exporter 4.8.3 and 4.8.4 (DCGM 4.6) have percent under this name, here it is 0 to 1 as since DCGM 4.7: list DCGM_FI_DEV_GPU_UTIL"
)

// whyDifferent explains a value that differs.
func whyDifferent(f *dto.MetricFamily, oldValue float64) string {
	switch name := f.GetName(); {
	case isBlank(oldValue):
		return "the old page shows a blank of DCGM as a number"
	case strings.HasPrefix(name, "DCGM_EXP_") && strings.HasSuffix(name, "_COUNT"):
		return "events are counted here, not samples: docs/compatibility.md"
	case name == utilRatio && oldValue >= 1:
		return percentAsRatio
	case f.GetType() == dto.MetricType_COUNTER:
		return "totals should agree: compare again, then look for a difference in the list"
	}
	return "values of a moment differ if they were sampled at different times: compare again"
}

// labelNames returns the names of descriptive labels on a page.
func labelNames(page map[string]*quantity) map[string]bool {
	out := map[string]bool{}
	for _, q := range page {
		for _, m := range q.family.GetMetric() {
			for _, l := range m.GetLabel() {
				out[l.GetName()] = true
			}
		}
	}
	return out
}

// otherLabels maps renamed labels that are not fields: dcgm-exporter 4.8.3 renamed the host; pages
// outside Kubernetes have a lower-case uuid.
var otherLabels = map[string]string{"Hostname": "hostname", "uuid": "UUID", "gpu_uuid": "UUID"}

func (c *comparison) compareLabels(olds, news map[string]bool) {
	meaning := func(name string) string { return cmp.Or(otherLabels[name], readingOf(name)) }
	all, used := slices.Sorted(maps.Keys(news)), map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(olds)) {
		if news[name] {
			continue
		}
		is := renamed(name, all) // both pages can have it
		if i := slices.IndexFunc(all, func(n string) bool { return !olds[n] && !used[n] && meaning(n) == meaning(name) }); i >= 0 {
			is = all[i]
		}
		used[is] = true
		if is == "" {
			c.add(finding{Kind: labelMissing, Old: name, Meaning: "by() clauses and selectors that use it match nothing: add a row of type label, or the option that supplies it"})
			continue
		}
		c.add(finding{Kind: labelRenamed, Old: name, New: is, Meaning: "joins and by() clauses need the new name"})
	}
}

func (c *comparison) writeTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	if len(c.Findings) > 0 {
		fmt.Fprintln(t, "FINDING\tOLD\tNEW\tVALUES\tMEANING")
	}
	for _, f := range c.Findings {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", f.Kind, cmp.Or(f.Old, "-"), cmp.Or(f.New, "-"), cmp.Or(f.Values, "-"), f.Meaning)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "the same: %d of %d series\n", c.Same, c.Series)
	return err
}
