//go:build linux && cgo

package dcgm

import (
	"errors"
	"fmt"
	"math"
	"os"
	"testing"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/dl"
)

// A machine is a node with a host engine: our simulation of DCGM, or NVIDIA's own
// DCGM over our simulation of NVML. Tests that need nothing but this run on both
// (see onBoth). What is asked of a script of libdcgm's calls (codes, calls that
// hang, missing functions, kinds of entities that need hardware or another library)
// is tested on the simulation alone.
//
// NVIDIA's polls its driver in its own time, so tests wait for what they change.
type machine interface {
	// options are those of a collector that uses the engine.
	options() Options
	// simulation is nil if DCGM is NVIDIA's.
	simulation() *dcgmtest.Engine

	// set gives a GPU a value of one of the fields in settable; blank makes the
	// driver have none, with one of dcgmtest's reasons; unset ends both.
	set(gpu int, name string, v float64)
	blank(gpu int, name string, why int)
	unset(gpu int, name string)
	xid(gpu, code int)
	// sick makes the engine's judgement of a GPU's memory bad.
	sick(gpu int)
	lose(gpu int)
	restore(gpu int)
	remove(gpu int) // before the engine has begun to read it
	setMIG(gpu int, profiles ...string)
	uuids(gpu int) map[string]string // of compute instances, by "GPU instance/compute instance"
	setLink(gpu, link int, up bool)
	setPeers(a, b, status int)

	// hang makes calls of the driver hang: the engine answers with what it has read.
	hang() (release func())
	// silence makes the engine answer no call.
	silence() (release func())
	// stop ends the engine, start begins another one where it was.
	stop()
	start()
}

// hardware is what a machine is made of.
type hardware struct {
	gpus int
	// mig are the instances of GPU 0: "3g", "2g", "1g", or "3g/2" for two compute
	// instances. GPUs have no links then, which MIG takes away.
	mig []string
	// embedded: the engine is in this process; tcp: it is reached by that.
	embedded, tcp bool
}

// onBoth runs a test on the simulated DCGM and on NVIDIA's, which is skipped unless
// DCGM_TEST_REAL is 1.
func onBoth(t *testing.T, h hardware, f func(t *testing.T, m machine)) {
	t.Helper()
	t.Run("simulated", func(t *testing.T) { f(t, newSimulated(t, h)) })
	t.Run("NVIDIA", func(t *testing.T) { f(t, newReal(t, h)) })
}

// TestMain loads NVIDIA's library before any simulated one: the loader takes what
// has that soname and is there already. In a process of TestManyClients it is a client.
func TestMain(m *testing.M) {
	if library := os.Getenv(clientVariable); library != "" {
		if client(library) != nil {
			os.Exit(1) //nolint:forbidigo // it is main now
		}
		return
	}
	if os.Getenv(realVariable) == "1" {
		if _, err := dl.Open([]string{soname}); err != nil {
			panic(fmt.Errorf("%s is 1: %w", realVariable, err))
		}
	}
	m.Run()
}

// settable are fields that tests give values: dcgmtest's number of it, and the key of
// the simulated NVML with how many of its units are one of DCGM's.
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

// settableNames in another order.
var settableNames = []string{temperature, power, energy, "DCGM_FI_DEV_MEM_CLOCK", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_DEV_MEMORY_TEMP"}

// until samples a source until done, which gets the error of Sample, says so.
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

// untilValue samples until a field of a device has that value.
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

// nothingLeft complains of what collectors that are closed have left in the engine,
// as far as it can be known: NVIDIA's forgets what a connection had when that ends.
func nothingLeft(tb testing.TB, m machine) {
	tb.Helper()
	if e := m.simulation(); e != nil {
		if n := e.Counts(); n != (dcgmtest.Counts{Inits: 1}) {
			tb.Errorf("left over: %+v", n)
		}
	}
}

// has reports whether a device has a value of a field in the last row.
func (c *opened) has(tb testing.TB, id, name string) bool {
	tb.Helper()
	v, _ := c.value(tb, id, name)
	return !math.IsNaN(v)
}
