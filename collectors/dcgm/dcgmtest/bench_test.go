//go:build linux && cgo

package dcgmtest_test

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	godcgm "github.com/NVIDIA/go-dcgm/pkg/dcgm"

	"warpgauge/collectors/dcgm"
	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/dl"
	"warpgauge/pkg/field"
)

// DCGM_TEST_REAL=1 makes the benchmarks use the library that the loader finds and
// the engine that DCGM_TEST_ENGINE names, which must have 8 GPUs without MIG.
// DCGM_TEST_ENGINE_PID is its process, whose CPU time is then reported, too.

func realEngine() (address string, ok bool) {
	return os.Getenv("DCGM_TEST_ENGINE"), os.Getenv("DCGM_TEST_REAL") == "1"
}

// numbers returns n fields that are read at each tick, first those that instances
// have, too.
func numbers(tb testing.TB, n int) (names []string, ids []godcgm.Short, ofInstances int) {
	tb.Helper()
	for _, level := range [][]field.Level{{field.Instance, field.ComputeInstance}, {field.GPU}} {
		for _, d := range field.All() {
			number := d.Kind == field.Int64 || d.Kind == field.Double
			number = number && (d.ID <= 1012 || d.ID >= 1100) // of profiling what every GPU has
			if len(ids) < n && number && d.ID > 0 && d.ID < field.FirstExporter && !d.Event && d.Of == 0 && d.Cost == field.EachTick && slices.Contains(level, d.Level) {
				names, ids = append(names, d.Name), append(ids, godcgm.Short(d.ID))
			}
		}
		if ofInstances == 0 {
			ofInstances = len(ids)
		}
	}
	if len(ids) < n {
		tb.Fatalf("the catalogue has %d such fields, want %d", len(ids), n)
	}
	return names, ids, ofInstances
}

// opened is our collector on a list of fields.
type opened struct {
	sources []collector.Source
	rows    [][]float64
	due     [][]bool
	columns int
}

func open(b *testing.B, o dcgm.Options, names []string) *opened {
	b.Helper()
	var text strings.Builder
	for _, n := range names {
		text.WriteString(n + ", gauge, text\n")
	}
	list, _, err := field.Parse(strings.NewReader(text.String()), field.ParseOptions{})
	if err != nil {
		b.Fatal(err)
	}
	c := dcgm.New(o)
	out := &opened{}
	if out.sources, err = c.Open(b.Context(), list); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	})
	for _, s := range out.sources {
		n := len(s.Columns())
		out.columns += n
		out.rows, out.due = append(out.rows, make([]float64, n)), append(out.due, slices.Repeat([]bool{true}, n))
	}
	return out
}

// tick samples everything. That an engine has no value yet is not what is measured.
func (o *opened) tick() {
	for i, s := range o.sources {
		_ = s.Sample(o.rows[i], o.due[i])
	}
}

// plain is the plain way through go-dcgm: one call for each entity.
type plain struct {
	entities    []godcgm.GroupEntityPair
	fields      []godcgm.Short
	ofInstances int // the first fields
	row         []float64
}

// watched makes names of groups, of which there is one set at a time otherwise.
var watched int

func watchPlainly(b *testing.B, address string, entities []godcgm.GroupEntityPair, fields []godcgm.Short, ofInstances int, every time.Duration) *plain {
	b.Helper()
	if address == "" {
		address = "localhost:5555"
	}
	// Never taken back: it would shut down the library for everyone in the process.
	if _, err := godcgm.Init(godcgm.Standalone, address, "0"); err != nil {
		b.Fatal(err)
	}
	watched++
	group, err := godcgm.CreateGroup("plain" + strconv.Itoa(watched))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := godcgm.DestroyGroup(group); err != nil {
			b.Error(err)
		}
	})
	for _, e := range entities {
		if err := godcgm.AddEntityToGroup(group, e.EntityGroupId, e.EntityId); err != nil {
			b.Fatal(err)
		}
	}
	for i, some := range slices.Collect(slices.Chunk(fields, 100)) {
		fg, err := godcgm.FieldGroupCreate(fmt.Sprintf("plain%d-%d", watched, i), some)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := godcgm.UnwatchFields(fg, group); err != nil {
				b.Error(err)
			}
			if err := godcgm.FieldGroupDestroy(fg); err != nil {
				b.Error(err)
			}
		})
		if err := godcgm.WatchFieldsWithGroupEx(fg, group, every.Microseconds(), 2*every.Seconds(), 1); err != nil {
			b.Fatal(err)
		}
	}
	return &plain{entities, fields, ofInstances, make([]float64, len(entities)*len(fields))}
}

func (p *plain) tick() error {
	for i, e := range p.entities {
		fields := p.fields
		if e.EntityGroupId == godcgm.FE_GPU_I {
			fields = fields[:p.ofInstances]
		}
		values, err := godcgm.EntityGetLatestValues(e.EntityGroupId, e.EntityId, fields)
		if err != nil {
			return err
		}
		for j := range values {
			p.row[i*len(p.fields)+j] = number(&values[j])
		}
	}
	return nil
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

// BenchmarkTick reads all fields of all entities, in turns with the plain way.
func BenchmarkTick(b *testing.B) {
	address, isReal := realEngine()
	for _, entities := range []int{8, 16, 56} {
		if isReal && entities != 8 {
			continue
		}
		for _, fields := range []int{25, 60, 100} {
			b.Run(fmt.Sprintf("%dx%d", entities, fields), func(b *testing.B) { benchmarkTick(b, address, isReal, entities, fields) })
		}
	}
}

func benchmarkTick(b *testing.B, address string, isReal bool, entities, fields int) {
	o := dcgm.Options{Engine: address}
	var pairs []godcgm.GroupEntityPair
	gpus := min(entities, 16)
	if entities == 56 {
		gpus = 8
	}
	for g := range gpus {
		pairs = append(pairs, godcgm.GroupEntityPair{EntityGroupId: godcgm.FE_GPU, EntityId: uint(g)})
	}
	if !isReal {
		e := shared(b)
		e.Become(dcgmtest.Config{Preset: "pcie", GPUs: gpus})
		o.Library = e.Library()
		if entities == 56 {
			for g := range gpus {
				e.SetMIG(g, slices.Repeat([]string{"1g.5gb"}, 6)...)
				for i := range 6 {
					pairs = append(pairs, godcgm.GroupEntityPair{EntityGroupId: godcgm.FE_GPU_I, EntityId: uint(8*g + i)})
				}
			}
		}
		o.Engine = "/near" // as embedded: one call for up to 1024 values
	}
	names, ids, ofInstances := numbers(b, fields)
	mine := open(b, o, names)
	rival := watchPlainly(b, address, pairs, ids, ofInstances, time.Second)
	compare(b, mine, rival)
}

func compare(b *testing.B, mine *opened, rival *plain) {
	b.Helper()
	theirs := func() {
		if err := rival.tick(); err != nil {
			b.Fatal(err)
		}
	}
	var ours, plainly []time.Duration
	took := func(f func()) time.Duration {
		start := time.Now()
		f()
		return time.Since(start)
	}
	mine.tick()
	theirs()
	for b.Loop() {
		ours, plainly = append(ours, took(mine.tick)), append(plainly, took(theirs))
	}
	slices.Sort(ours)
	slices.Sort(plainly)
	a, p := ours[len(ours)/2], plainly[len(plainly)/2]
	b.ReportMetric(float64(mine.columns), "columns")
	b.ReportMetric(float64(a.Nanoseconds())/1e3, "µs/ours")
	b.ReportMetric(float64(p.Nanoseconds())/1e3, "µs/plain")
	b.ReportMetric(float64(p)/float64(a), "plain/ours")
	allocs, bytes := allocations(mine.tick)
	b.ReportMetric(allocs, "allocs/ours")
	b.ReportMetric(bytes, "B/ours")
	allocs, bytes = allocations(theirs)
	b.ReportMetric(allocs, "allocs/plain")
	b.ReportMetric(bytes, "B/plain")
}

// allocations are those of one call, in the mean of ten.
func allocations(f func()) (allocs, bytes float64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 10 {
		f()
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / 10, float64(after.TotalAlloc-before.TotalAlloc) / 10
}

// sharedEngine is the one library of this process: go-dcgm's calls are bound to the
// first, for ever.
var sharedEngine *dcgmtest.Engine

func shared(b *testing.B) *dcgmtest.Engine {
	b.Helper()
	if sharedEngine != nil {
		return sharedEngine
	}
	dir, err := os.MkdirTemp("", "dcgmtest-bench-") //nolint:usetesting // it outlives this benchmark
	if err != nil {
		b.Fatal(err)
	}
	e, err := dcgmtest.Write(dir, dcgmtest.Config{Preset: "empty"}, func(err error) { panic(err) })
	if err != nil {
		b.Skip(err)
	}
	// By its soname go-dcgm then finds it, too.
	if _, err := dl.Open([]string{e.Library()}); err != nil {
		b.Fatal(err)
	}
	sharedEngine = e
	return e
}

// BenchmarkCPU is the CPU time of a second at some interval on the real engine, of
// this process and of the engine's, ours in turns with the plain way and with
// watches alone.
func BenchmarkCPU(b *testing.B) {
	address, isReal := realEngine()
	if !isReal {
		b.Skip("DCGM_TEST_REAL is not 1")
	}
	names, ids, ofInstances := numbers(b, 25)
	var pairs []godcgm.GroupEntityPair
	for g := range 8 {
		pairs = append(pairs, godcgm.GroupEntityPair{EntityGroupId: godcgm.FE_GPU, EntityId: uint(g)})
	}
	for _, every := range []time.Duration{time.Second, 100 * time.Millisecond, 10 * time.Millisecond} {
		b.Run(every.String(), func(b *testing.B) {
			mine := open(b, dcgm.Options{Engine: address, Interval: every}, names)
			rival := watchPlainly(b, address, pairs, ids, ofInstances, every)
			total := map[string][2]time.Duration{}
			seconds := 0
			for b.Loop() {
				seconds++
				for name, tick := range map[string]func(){"idle": func() {}, "ours": mine.tick, "plain": func() { _ = rival.tick() }} {
					self, engine := cpu(every, tick)
					t := total[name]
					total[name] = [2]time.Duration{t[0] + self, t[1] + engine}
				}
			}
			for name, t := range total {
				b.ReportMetric(t[0].Seconds()*1e3/float64(seconds), "ms-"+name)
				b.ReportMetric(t[1].Seconds()*1e3/float64(seconds), "engine-ms-"+name)
			}
		})
	}
}

// cpu runs f at an interval for a second.
func cpu(every time.Duration, f func()) (self, engine time.Duration) {
	self0, engine0 := selfCPU(), engineCPU()
	t := time.NewTicker(every)
	defer t.Stop()
	for range int(time.Second / every) {
		<-t.C
		f()
	}
	return selfCPU() - self0, engineCPU() - engine0
}

func selfCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// engineCPU is what the scheduler says of all threads of the engine.
func engineCPU() (sum time.Duration) {
	tasks, err := os.ReadDir("/proc/" + os.Getenv("DCGM_TEST_ENGINE_PID") + "/task")
	if err != nil {
		return 0
	}
	for _, t := range tasks {
		text, err := os.ReadFile("/proc/" + os.Getenv("DCGM_TEST_ENGINE_PID") + "/task/" + t.Name() + "/schedstat")
		if err != nil {
			continue
		}
		if n, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64); err == nil {
			sum += time.Duration(n)
		}
	}
	return sum
}
