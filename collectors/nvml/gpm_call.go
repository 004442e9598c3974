//go:build linux && cgo

package nvml

/*
#include "gpm.h"
*/
import "C"

import (
	"errors"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/pkg/dl"
)

// wholeDevice stands for all of a device rather than a GPU instance of it.
const wholeDevice uint32 = C.WG_GPM_WHOLE

// gpmCalls takes and reads samples of GPM, in one crossing for all that a tick
// needs. It allocates nothing after it was made. For one goroutine at a time.
type gpmCalls struct {
	lib    *dl.Library
	shared *C.struct_wg_gpm
	takes  []C.struct_wg_gpm_take
	reads  []C.struct_wg_gpm_read
	values []C.struct_wg_gpm_value
	cost   C.struct_wg_gpm_cost
	made   []uint64 // samples
}

var errNoMemory = errors.New("no memory for profiling samples")

// newGPMCalls makes one with room for so many samples to take and reads a run. The
// metrics are those that reads pick from.
func newGPMCalls(lib *dl.Library, takes, reads int, metrics []uint32) (*gpmCalls, error) {
	get, err := lib.Lookup("nvmlGpmSampleGet")
	if err != nil {
		return nil, err
	}
	read, err := lib.Lookup("nvmlGpmMetricsGet")
	if err != nil {
		return nil, err
	}
	ofInstance, err := lib.Lookup("nvmlGpmMigSampleGet")
	if err != nil {
		ofInstance = nil
	}
	shared := C.wg_gpm_new(get, ofInstance, read)
	if shared == nil {
		return nil, errNoMemory
	}
	c := &gpmCalls{
		lib: lib, shared: shared,
		takes:  make([]C.struct_wg_gpm_take, 0, takes),
		reads:  make([]C.struct_wg_gpm_read, 0, reads),
		values: make([]C.struct_wg_gpm_value, len(metrics)),
	}
	for i, m := range metrics {
		c.values[i].metric = C.uint32_t(m)
	}
	return c, nil
}

// sample makes a buffer for a sample. close frees it.
func (c *gpmCalls) sample() (uint64, error) {
	f, err := c.lib.Lookup("nvmlGpmSampleAlloc")
	if err != nil {
		return 0, err
	}
	s := uint64(C.wg_gpm_sample(f))
	if s == 0 {
		return 0, errNoMemory
	}
	c.made = append(c.made, s)
	return s, nil
}

// begin forgets what was wanted before.
func (c *gpmCalls) begin() { c.takes, c.reads = c.takes[:0], c.reads[:0] }

// take wants a sample of a device, or of a GPU instance of it.
func (c *gpmCalls) take(device uintptr, instance uint32, sample uint64) (number int) {
	c.takes = append(c.takes, C.struct_wg_gpm_take{dev: C.uint64_t(device), instance: C.uint32_t(instance), sample: C.uint64_t(sample)})
	return len(c.takes) - 1
}

// read wants metrics from two samples, of which the newer is that of a take.
func (c *gpmCalls) read(older, newer uint64, first, count, take int) (number int) {
	c.reads = append(c.reads, C.struct_wg_gpm_read{
		older: C.uint64_t(older), newer: C.uint64_t(newer),
		first: C.uint32_t(first), count: C.uint32_t(count), take: C.uint32_t(take),
	})
	return len(c.reads) - 1
}

// run does what is wanted. It may hang where the driver does.
func (c *gpmCalls) run() {
	if len(c.takes) == 0 {
		return
	}
	var reads *C.struct_wg_gpm_read
	if len(c.reads) > 0 {
		reads = &c.reads[0]
	}
	C.wg_gpm_run(c.shared, &c.takes[0], C.uint32_t(len(c.takes)), reads, C.uint32_t(len(c.reads)), &c.values[0], &c.cost)
}

func (c *gpmCalls) taken(number int) nvml.Return { return nvml.Return(c.takes[number].code) }

// value is a metric as GPM gives it. It is read when its read went well.
func (c *gpmCalls) value(i int) (float64, nvml.Return) {
	return float64(c.values[i].value), nvml.Return(c.values[i].code)
}

// spent is what the newest run has cost.
func (c *gpmCalls) spent() (takes, takeNanos, reads, readNanos uint64) {
	return uint64(c.cost.takes), uint64(c.cost.take_nanos), uint64(c.cost.reads), uint64(c.cost.read_nanos)
}

func (c *gpmCalls) close() {
	if f, err := c.lib.Lookup("nvmlGpmSampleFree"); err == nil {
		for _, s := range c.made {
			C.wg_gpm_drop(f, C.uint64_t(s))
		}
	}
	C.wg_gpm_free(c.shared)
	c.made, c.shared = nil, nil
}
