package remote

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/field"
	"warpgauge/pkg/lists"
	"warpgauge/pkg/view"
)

func TestGuard(t *testing.T) {
	many := &strings.Builder{}
	for _, d := range field.All() {
		many.WriteString(d.Name + ", gauge, x\n")
	}
	for name, c := range map[string]struct {
		text  string
		guard func(*Guard)
		want  []string // refusals, each "line text"; empty: accepted
	}{
		"at every limit":    {text: listB, guard: func(g *Guard) { g.Bytes, g.Fields, g.Series = int64(len(listB)), 2, 16 }},
		"bytes":             {text: listB, guard: func(g *Guard) { g.Bytes = 10 }, want: []string{"0 the list has 65 bytes, which is more than 10"}},
		"fields":            {text: listB, guard: func(g *Guard) { g.Fields = 1 }, want: []string{"0 2 fields are more than 1"}},
		"many":              {text: many.String(), guard: func(g *Guard) { g.Series, g.Allow = 1<<30, []string{AllowProfiling} }, want: []string{"fields are more than 500"}},
		"interval":          {text: listB + "DCGM_FI_DEV_SM_CLOCK, gauge, c, interval=50ms\n", want: []string{"3 DCGM_FI_DEV_SM_CLOCK: the interval 50ms is shorter than 100ms"}},
		"shortest interval": {text: listB + "DCGM_FI_DEV_SM_CLOCK, gauge, c, interval=100ms\n"},
		"profiling": {text: listA + "DCGM_FI_PROF_SM_ACTIVE, gauge, x\nDCGM_FI_PROF_DRAM_ACTIVE, gauge, x\n",
			want: []string{"2 DCGM_FI_PROF_SM_ACTIVE: profiling", "3 DCGM_FI_PROF_DRAM_ACTIVE: profiling"}},
		"profiling allowed": {text: listA + "DCGM_FI_PROF_SM_ACTIVE, gauge, x\n", guard: func(g *Guard) { g.Allow = []string{AllowProfiling} }},
		"changing label":    {text: listA + "DCGM_FI_DEV_POWER_USAGE, label, x\n", want: []string{"2 DCGM_FI_DEV_POWER_USAGE: labels that change"}},
		"label allowed":     {text: listA + "DCGM_FI_DEV_POWER_USAGE, label, x\n", guard: func(g *Guard) { g.Allow = []string{AllowChangingLabels} }},
		"label":             {text: listA + "DCGM_FI_DRIVER_VERSION, label, x\n"},
		"series":            {text: listA + "DCGM_FI_DEV_POWER_USAGE, histogram, x, buckets=1|2|3\n", guard: func(g *Guard) { g.Series = 55 }, want: []string{"2 the list makes up to 56 series here, which is more than 55 (--remote-limit series); most are of DCGM_FI_DEV_POWER_USAGE: 48"}},
		"no device":         {text: "DCGM_FI_DEV_CPU_UTIL_TOTAL, gauge, x\n", guard: func(g *Guard) { g.Series = 1 << 30 }},
		"all at once": {text: "# warpgauge: x\n" + listA + "DCGM_FI_DEV_SM_CLOCK, gauge, c, interval=10ms\nDCGM_FI_PROF_SM_ACTIVE, gauge, x\n",
			want: []string{"1 ", "3 ", "4 "}},
	} {
		g := usual
		if c.guard != nil {
			c.guard(&g)
		}
		refused, err := g.Examine(g.Parse(&lists.Offer{Content: []byte(c.text)}, files()), gpus(8, listA))
		if (err != nil) != (len(c.want) > 0) || len(refused) != len(c.want) {
			t.Errorf("%s: %v, refused %q, want %q", name, err, refused, c.want)
			continue
		}
		for i, want := range c.want {
			testkit.Has(t, fmt.Sprintf("%s: refused", name), strconv.Itoa(refused[i].Line)+" "+refused[i].Text, want)
		}
	}
}

func TestRefusalsAreBounded(t *testing.T) {
	text := &strings.Builder{}
	for _, d := range field.All() {
		if strings.HasPrefix(d.Name, "DCGM_FI_PROF_") {
			text.WriteString(d.Name + ", gauge, x\n")
		}
	}
	for i := range 3 * maxRefusals {
		fmt.Fprintf(text, "DCGM_FI_DEV_GPU_TEMP, gouge, x\nNO_SUCH_%d, gauge, x\n", i)
	}
	refused, err := usual.Examine(usual.Parse(&lists.Offer{Content: []byte(text.String())}, files()), &view.View{})
	testkit.ErrorIf(t, err == nil || len(refused) > maxRefusals, "%d refusals, %v", len(refused), err)
	core, logs := observer.New(zap.WarnLevel)
	b := newBench(t, func(b *bench) { b.o.Logger = zap.New(core) })
	for range 2 { // the server sends a refused list with every answer
		b.deliver("many", text.String())
	}
	testkit.Equal(t, "warnings that are logged", maxWarnings, logs.FilterMessageSnippet("list of the server: ").Len())
	testkit.Lacks(t, "log", fmt.Sprint(logs.All()), "NO_SUCH_")
}

// TestSeries: series of current readings are counted; series of other readings are bounded from above.
func TestSeries(t *testing.T) {
	v := gpus(8, listA)
	s := v.Sources[0]
	gauge := func(name string) field.Field { return collectortest.Gauges(t, name).Fields[0] }
	for name, want := range map[string]int{
		"DCGM_FI_DEV_GPU_TEMP": 8, "DCGM_FI_DEV_POWER_USAGE": 8, "DCGM_FI_DEV_CONNECTX_HEALTH": maxDevices[field.ConnectX],
		"DCGM_EXP_XID_ERRORS_COUNT": 8 * codes, "DCGM_EXP_CLOCK_EVENTS_TOTAL": 8 * field.ClockReasons,
	} {
		f := gauge(name)
		testkit.Equal(t, "series of "+name, want, newInventory(v).series(&f))
	}
	link := field.Field{Desc: &field.Descriptor{ID: 65000, Level: field.Link}}
	testkit.Equal(t, "series of a field of links that are not known yet", 8*linksOfGPU, newInventory(v).series(&link))
	s.Devices = append(s.Devices, collector.Device{ID: "l0", Level: field.Link}, collector.Device{ID: "l1", Level: field.Link}, collector.Device{ID: "i", Level: field.Instance})
	testkit.Equal(t, "series of a field of 2 links", 2, newInventory(v).series(&link))
	f := gauge("DCGM_FI_DEV_FB_USED")
	testkit.Equal(t, "series of a field of GPUs and instances", 9, newInventory(v).series(&f))
	// A second collector of the same GPUs adds no series.
	v.Sources = append(v.Sources, s)
	f = gauge("DCGM_FI_DEV_GPU_TEMP")
	testkit.Equal(t, "series of two collectors", 8, newInventory(v).series(&f))
	// The list has the field, but no device supplies it.
	s.Fields, s.Columns = field.List{Fields: []field.Field{gauge("DCGM_FI_DEV_POWER_USAGE")}}, nil
	f = gauge("DCGM_FI_DEV_POWER_USAGE")
	testkit.Equal(t, "series of a field that no device has", 0, newInventory(v).series(&f))
	list := field.List{Fields: []field.Field{f, f}}
	_, widest := newInventory(v).all(list)
	if out := usual.check(list, v); len(out) != 1 || !strings.Contains(out[0].Text, "no device") || widest != &list.Fields[0] {
		t.Errorf("refused %v, most series are of %v", out, widest)
	}
}
