//go:build linux && cgo

package dcgmtest_test

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	godcgm "github.com/NVIDIA/go-dcgm/pkg/dcgm"

	"warpgauge/collectors/dcgm"
	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/collectors/internal/dl"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/field"
)

// numbers returns n fields that are read on every tick, starting with those that instances also have.
func numbers(tb testing.TB, n int) (names []string, ids []godcgm.Short, ofInstances int) {
	tb.Helper()
	for _, level := range [][]field.Level{{field.Instance, field.ComputeInstance}, {field.GPU}} {
		for _, d := range field.All() {
			number := (d.Kind == field.Int64 || d.Kind == field.Double) && (d.ID <= 1012 || d.ID >= 1100) // of profiling, only the fields of every GPU
			if len(ids) < n && number && d.ID > 0 && d.ID < field.FirstExporter && !d.Event && d.Of == 0 && d.Cost == field.EachTick && slices.Contains(level, d.Level) {
				names, ids = append(names, d.Name), append(ids, godcgm.Short(d.ID))
			}
		}
		if ofInstances == 0 {
			ofInstances = len(ids)
		}
	}
	return names, ids, ofInstances
}

// ours returns a function that samples all fields of all devices with our collector.
func ours(b *testing.B, library string, names []string) (tick func(), columns int) {
	b.Helper()
	list, _, err := field.Parse(strings.NewReader(strings.Join(names, ", gauge, text\n")+", gauge, text\n"), field.ParseOptions{})
	testkit.Must(b, err)
	c := dcgm.New(dcgm.Options{Library: library, Engine: "/near"}) // like an embedded engine: up to 1024 values per call
	sources := testkit.Get(c.Open(b.Context(), list))(b)
	b.Cleanup(func() { _ = c.Close() })
	n := len(sources[0].Columns())
	row, due := make([]float64, n), slices.Repeat([]bool{true}, n)
	return func() { _ = sources[0].Sample(row, due) }, n
}

// plain returns a function that reads the same through go-dcgm with one call per entity.
func plain(b *testing.B, entities []godcgm.GroupEntityPair, fields []godcgm.Short, ofInstances int) (tick func()) {
	b.Helper()
	testkit.Get(godcgm.Init(godcgm.Standalone, "localhost:5555", "0"))(b) // no Shutdown, which would end the library's use for the whole process
	group := testkit.Get(godcgm.CreateGroup("plain"))(b)
	b.Cleanup(func() { testkit.Must(b, godcgm.DestroyGroup(group)) })
	for _, e := range entities {
		testkit.Must(b, godcgm.AddEntityToGroup(group, e.EntityGroupId, e.EntityId))
	}
	fg := testkit.Get(godcgm.FieldGroupCreate("plain", fields))(b)
	b.Cleanup(func() { testkit.Must(b, godcgm.FieldGroupDestroy(fg)) })
	testkit.Must(b, godcgm.WatchFieldsWithGroupEx(fg, group, time.Second.Microseconds(), 2, 1))
	b.Cleanup(func() { testkit.Must(b, godcgm.UnwatchFields(fg, group)) })
	row := make([]float64, len(fields))
	return func() {
		for _, e := range entities {
			asked := fields
			if e.EntityGroupId == godcgm.FE_GPU_I {
				asked = fields[:ofInstances]
			}
			values, err := godcgm.EntityGetLatestValues(e.EntityGroupId, e.EntityId, asked)
			testkit.Must(b, err)
			for i := range values {
				row[i] = number(&values[i])
			}
		}
	}
}

func number(v *godcgm.FieldValue_v1) float64 {
	switch {
	case v.Status != 0:
	case v.FieldType == godcgm.DCGM_FT_INT64:
		if n := v.Int64(); n < math.MaxInt64-15 {
			return float64(n)
		}
	case v.FieldType == godcgm.DCGM_FT_DOUBLE:
		if n := v.Float64(); n < 1<<47 {
			return n
		}
	}
	return math.NaN()
}

// BenchmarkTick reads all fields of all entities, alternating with plain. All sizes use one library with 8 GPUs and 48
// instances, because go-dcgm stays bound to the first library that it loads.
func BenchmarkTick(b *testing.B) {
	dir, err := os.MkdirTemp("", "dcgmtest-bench-") //nolint:usetesting // it outlives this benchmark
	testkit.Must(b, err)
	e, err := dcgmtest.Write(dir, dcgmtest.Config{Preset: "pcie"}, func(err error) { panic(err) })
	if err != nil {
		b.Skip(err)
	}
	if _, err := dl.Open([]string{e.Library()}); err != nil { // so that go-dcgm finds it by its soname
		b.Fatal(err)
	}
	var entities []godcgm.GroupEntityPair
	for g := range 8 {
		entities = append(entities, godcgm.GroupEntityPair{EntityGroupId: godcgm.FE_GPU, EntityId: uint(g)})
	}
	bench := func(fields int) {
		b.Run(fmt.Sprintf("%dx%d", len(entities), fields), func(b *testing.B) {
			names, ids, ofInstances := numbers(b, fields)
			mine, columns := ours(b, e.Library(), names)
			compare(b, mine, plain(b, entities, ids, ofInstances))
			b.ReportMetric(float64(columns), "columns")
		})
	}
	bench(25)
	bench(100)
	for g := range 8 {
		e.SetMIG(g, slices.Repeat([]string{"1g.5gb"}, 6)...)
		for i := range 6 {
			entities = append(entities, godcgm.GroupEntityPair{EntityGroupId: godcgm.FE_GPU_I, EntityId: uint(8*g + i)})
		}
	}
	bench(100)
}

// compare runs both in turn and reports the medians.
func compare(b *testing.B, mine, theirs func()) {
	b.Helper()
	var times [2][]time.Duration
	mine()
	theirs()
	for b.Loop() {
		for i, tick := range []func(){mine, theirs} {
			start := time.Now()
			tick()
			times[i] = append(times[i], time.Since(start))
		}
	}
	var medians [2]float64
	for i, who := range []string{"ours", "plain"} {
		slices.Sort(times[i])
		medians[i] = float64(times[i][len(times[i])/2].Nanoseconds())
		b.ReportMetric(medians[i]/1e3, "µs/"+who)
		b.ReportMetric(testing.AllocsPerRun(10, []func(){mine, theirs}[i]), "allocs/"+who)
	}
	b.ReportMetric(medians[1]/medians[0], "plain/ours")
}
