//go:build linux && cgo

package dcgm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/collectors/internal/dl"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// A machine is a node with a host engine: our simulation of DCGM, or NVIDIA's own DCGM over our simulation of NVML.
// Tests that only use this interface run on both (see onBoth). Tests of error codes, hanging calls, missing functions,
// and kinds of entities that need hardware or another library run only on the simulation.
//
// NVIDIA's engine polls its driver independently, so tests wait for their changes.
type machine interface {
	// options returns the options of a collector that uses the engine.
	options() Options
	// simulation returns nil for NVIDIA's DCGM.
	simulation() *dcgmtest.Engine

	// set sets a GPU's value of one of the fields in settable. blank makes it one of dcgmtest's blanks.
	set(gpu int, name string, v float64)
	blank(gpu int, name string, why int)
	xid(gpu, code int)
	// sick makes the engine report a problem of a GPU's memory.
	sick(gpu int)
	lose(gpu int)
	restore(gpu int)
	setMIG(gpu int, profiles ...string)
	uuids(gpu int) map[string]string // of compute instances, by "GPU instance/compute instance"
	setLink(gpu, link int, up bool)
	setPeers(a, b, status int)

	// hang makes driver calls hang. The engine keeps returning its last values.
	hang() (release func())
	// silence makes the engine answer no call.
	silence() (release func())
	// stop ends the engine, start starts another one at its address.
	stop()
	start()
}

// hardware describes a machine.
type hardware struct {
	gpus int
	// mig lists the instances of GPU 0: "3g", "2g", "1g", or "3g/2" for two compute instances. In MIG mode GPUs have no links.
	mig []string
	// embedded runs the engine in this process; tcp connects to it over TCP.
	embedded, tcp bool
}

// onBoth runs a test on the simulated DCGM and, if DCGM_TEST_REAL is 1, on NVIDIA's.
func onBoth(t *testing.T, h hardware, f func(t *testing.T, m machine)) {
	t.Helper()
	t.Run("simulated", func(t *testing.T) { f(t, newSimulated(t, h)) })
	t.Run("NVIDIA", func(t *testing.T) { f(t, newReal(t, h)) })
}

// onAll calls onBoth with a host engine and with an embedded engine.
func onAll(t *testing.T, h hardware, f func(t *testing.T, m machine)) {
	t.Helper()
	t.Run("host engine", func(t *testing.T) { onBoth(t, h, f) })
	h.embedded = true
	t.Run("embedded", func(t *testing.T) { onBoth(t, h, f) })
}

// TestMain loads NVIDIA's library before any simulated one, because the loader reuses a loaded library with the same soname.
func TestMain(m *testing.M) {
	if os.Getenv(realVariable) == "1" {
		if _, err := dl.Open([]string{soname}); err != nil {
			panic(fmt.Errorf("%s is 1: %w", realVariable, err))
		}
	}
	m.Run()
}

// settable lists the fields that tests set: dcgmtest's field ID, the key of the
// simulated NVML, and how many of NVML's units make one of DCGM's.
var settable = map[string]struct {
	id    int
	key   string
	scale float64
}{
	temperature:                 {150, "temperature", 1},
	power:                       {155, "power", 1000},
	energy:                      {156, "energy", 1},
	"DCGM_FI_DEV_MEM_CLOCK":     {101, "clock[2]", 1},
	"DCGM_FI_DEV_GPU_UTIL":      {203, "util.gpu", 1},
	"DCGM_FI_DEV_MEM_COPY_UTIL": {204, "util.memory", 1},
	"DCGM_FI_DEV_MEMORY_TEMP":   {140, "temperature.memory", 1},
}

// settableNames lists the keys of settable in another order.
var settableNames = []string{temperature, power, energy, "DCGM_FI_DEV_MEM_CLOCK", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_DEV_MEMORY_TEMP"}

// until samples a source until done returns true for the error of Sample.
func (c *opened) until(tb testing.TB, source int, what string, done func(err error) bool) {
	tb.Helper()
	eventually.OK(tb, what, func() error {
		err := c.sample(source)
		if done(err) {
			return nil
		}
		return fmt.Errorf("the last sample said %w", errors.Join(err, errNotYet))
	})
}

var errNotYet = errors.New("nothing more")

// untilValue samples until a field of a device has the value want.
func (c *opened) untilValue(tb testing.TB, id, name string, want float64) {
	tb.Helper()
	source, _ := c.device(tb, id)
	var got float64
	eventually.OK(tb, fmt.Sprintf("%s of %s is %v", name, id, want), func() error {
		err := c.sample(source)
		if got, _ = c.value(tb, id, name); same(got, want) {
			return nil
		}
		return fmt.Errorf("it is %v, and Sample said %w", got, errors.Join(err, errNotYet))
	})
}

// started opens a collector and waits until every source has values.
func started(tb testing.TB, m machine, names ...string) *opened {
	tb.Helper()
	c := open1(tb, m.options(), names...)
	for i := range c.sources {
		eventually.OK(tb, "first values", func() error { return c.sample(i) })
	}
	return c
}

// nothingLeft reports resources that closed collectors left in the simulated engine. NVIDIA's engine forgets the state of
// a connection when it ends.
func nothingLeft(tb testing.TB, m machine) {
	tb.Helper()
	if e := m.simulation(); e != nil {
		n := e.Counts()
		testkit.ErrorIf(tb, n != (dcgmtest.Counts{Inits: 1}), "left over: %+v", n)
	}
}

// has reports whether a device has a value of a field in the last row.
func (c *opened) has(tb testing.TB, id, name string) bool {
	tb.Helper()
	v, _ := c.value(tb, id, name)
	return !math.IsNaN(v)
}

// simulated is a machine with the simulated DCGM.
type simulated struct {
	*dcgmtest.Engine
	o   Options
	mig map[int][]string
}

func newSimulated(tb testing.TB, h hardware) machine {
	tb.Helper()
	c := dcgmtest.Config{GPUs: h.gpus}
	if h.mig != nil {
		c.Preset = "a100-mig"
	}
	e := dcgmtest.New(tb, c)
	o := remote(e)
	if h.embedded {
		o = embedded(e)
	}
	o.Interval = 10 * time.Millisecond
	m := &simulated{e, o, map[int][]string{}}
	if h.mig != nil {
		m.setMIG(0, h.mig...)
	}
	return m
}

func (m *simulated) options() Options                    { return m.o }
func (m *simulated) simulation() *dcgmtest.Engine        { return m.Engine }
func (m *simulated) xid(gpu, code int)                   { m.XID(gpu, code) }
func (m *simulated) lose(gpu int)                        { m.Lose(gpu) }
func (m *simulated) restore(gpu int)                     { m.Restore(gpu) }
func (m *simulated) silence() (release func())           { return m.Hang(dcgmtest.Every) }
func (m *simulated) stop()                               { m.Stop(-21) }
func (m *simulated) start()                              { m.Start() }
func (m *simulated) set(gpu int, name string, v float64) { m.put(gpu, name, dcgmtest.Number(v)) }
func (m *simulated) blank(gpu int, name string, why int) { m.put(gpu, name, dcgmtest.Blank(why)) }

func (m *simulated) put(gpu int, name string, v dcgmtest.Value) {
	m.Set(dcgmtest.GPU(gpu), settable[name].id, v)
}

func (m *simulated) sick(gpu int) {
	m.Incident(dcgmtest.GPU(gpu), 0x10, 10, 101, "an XID of its memory") // DCGM_HEALTH_WATCH_MEM, warn, DCGM_FR_XID_ERROR
}

func (m *simulated) hang() (release func()) {
	m.Freeze(dcgmtest.Everything())
	return func() { m.Thaw(dcgmtest.Everything()) }
}

// setMIG sets an A100's instances: "3g" means "3g.20gb".
func (m *simulated) setMIG(gpu int, profiles ...string) {
	var full []string
	for _, p := range profiles {
		full = append(full, p[:2]+map[string]string{"1g": ".5gb", "2g": ".10gb", "3g": ".20gb"}[p[:2]]+p[2:])
	}
	m.SetMIG(gpu, full...)
	m.mig[gpu] = profiles
}

// uuids numbers GPU instances from 1 and compute instances from 0.
func (m *simulated) uuids(gpu int) map[string]string {
	out := map[string]string{}
	for i, p := range m.mig[gpu] {
		for c := range 2 {
			if c == 0 || strings.HasSuffix(p, "/2") {
				out[fmt.Sprintf("%d/%d", i+1, c)] = dcgmtest.MIGUUID(gpu, i+1, c)
			}
		}
	}
	return out
}

func (m *simulated) setLink(gpu, link int, up bool) {
	state := dcgmtest.LinkDown
	if up {
		state = dcgmtest.LinkUp
	}
	m.SetLink(dcgmtest.GPU(gpu), link, state)
}

func (m *simulated) setPeers(a, b, status int) {
	m.SetPeer(a, b, status)
	m.SetPeer(b, a, status)
}

// list returns a list of names: labels if they begin with "label ", otherwise gauges.
func list(tb testing.TB, names ...string) field.List {
	tb.Helper()
	var b strings.Builder
	for _, n := range names {
		name, isLabel := strings.CutPrefix(n, "label ")
		kind := "gauge"
		if isLabel {
			kind = "label"
		}
		b.WriteString(name + ", " + kind + ", text\n")
	}
	l, _, err := field.Parse(strings.NewReader(b.String()), field.ParseOptions{})
	must(tb, err)
	return l
}

// opened is an open collector with its log.
type opened struct {
	*Collector
	sources []collector.Source
	logs    *observer.ObservedLogs
	row     [][]float64
	due     [][]bool
}

// openAs opens a collector with options, which must name the library.
func openAs(tb testing.TB, o Options, names ...string) (*opened, error) {
	tb.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	o.Log = zap.New(core)
	out := &opened{Collector: New(o), logs: logs}
	ctx, cancel := context.WithTimeout(tb.Context(), eventually.Patience)
	defer cancel()
	sources, err := out.Open(ctx, list(tb, names...))
	if err != nil {
		return out, err
	}
	tb.Cleanup(func() { _ = out.Close() })
	out.hold(sources)
	return out, nil
}

// hold creates rows for sources, with all columns due.
func (c *opened) hold(sources []collector.Source) {
	c.sources = sources
	for _, s := range sources {
		n := len(s.Columns())
		c.row, c.due = append(c.row, slices.Repeat([]float64{math.NaN()}, n)), append(c.due, slices.Repeat([]bool{true}, n))
	}
}

func remote(e *dcgmtest.Engine) Options {
	return Options{Library: e.Library(), Engine: "localhost:5555"}
}
func embedded(e *dcgmtest.Engine) Options { return Options{Library: e.Library()} }

func open1(tb testing.TB, o Options, names ...string) *opened {
	tb.Helper()
	c := testkit.Get(openAs(tb, o, names...))(tb)
	return c
}

// sample samples all columns of a source into a blank row.
func (c *opened) sample(source int) error {
	for i := range c.row[source] {
		c.row[source][i] = math.NaN()
	}
	return c.sources[source].Sample(c.row[source], c.due[source])
}

func (c *opened) mustSample(tb testing.TB) {
	tb.Helper()
	for i := range c.sources {
		must(tb, c.sample(i))
	}
}

// device returns the indexes of a device's source and of the device in it.
func (c *opened) device(tb testing.TB, id string) (source, device int) {
	tb.Helper()
	for s, src := range c.sources {
		for d, dev := range src.Devices() {
			if dev.ID == id {
				return s, d
			}
		}
	}
	tb.Fatalf("no device %q", id)
	return 0, 0
}

// value returns the cell of a field of a device; ok is false without a column.
func (c *opened) value(tb testing.TB, id, name string) (v float64, ok bool) {
	tb.Helper()
	d, _, known := field.ByName(name)
	testkit.FatalIf(tb, !known, "no field %q", name)
	s, dev := c.device(tb, id)
	for i, col := range c.sources[s].Columns() {
		if col.Device == dev && col.Field == d.ID {
			return c.row[s][i], true
		}
	}
	return math.NaN(), false
}

func (c *opened) readings(i int) *readings {
	return c.sources[i].(*source).parts[0].(*readings)
}
