package raw

import (
	"context"
	"time"

	"warpgauge/collectors/rocm/internal/gpumetrics"
)

// Reader opens GPUs. There are two: smi (librocm_smi64) and sysfs (/sys).
// GPUs are found by sysfs for both, since the library reads nothing else.
type Reader interface {
	// Open prepares to read the wanted readings of a GPU. It may be called for
	// several GPUs one after the other, each GPU is then read by a goroutine of
	// its own. A GPU that cannot be opened now is an error of that GPU alone.
	Open(ctx context.Context, g *GPU, wanted []Reading) (Handle, error)
	// Close ends the reader after all its handles. It can be called twice.
	Close() error
}

// Handle reads one GPU. Read is called by one goroutine at a time and allocates
// nothing in steady state.
type Handle interface {
	// Has says for each wanted reading whether it could ever have a value with
	// this board, driver and reader. That a value is missing just now does not
	// count: a file that is there but empty has.
	Has() []bool
	// Read stores the due readings in values. Blank, unsupported and torn are
	// NaN; cells that are not due stay as they are. Two readings of one file
	// cost one read of it.
	// Errors: collector.ErrDeviceLost, wrapped, if the GPU is gone; the next Read
	// looks whether it is back. All due cells are NaN then.
	Read(values []float64, due []bool) error
	// Close can be called twice. It never waits for a Read that hangs.
	Close() error
}

// Files is the Handle of sysfs, with what is read from /sys in both modes.
type Files interface {
	Handle
	// Suspended reports whether the board is powered down (power/runtime_status);
	// asking does not wake it, reading anything else does.
	Suspended() bool
	// Metrics reads and decodes gpu_metrics. Errors: those of package gpumetrics,
	// fs.ErrNotExist (the board has none), collector.ErrDeviceLost. m has nothing
	// then.
	Metrics(m *gpumetrics.Metrics) error
	// Bus reads pcie_bw, in which the driver sleeps for a second: bytes per second,
	// packets × largest payload, an upper bound. It may run beside Read and
	// Metrics, and beside Close. NaN and fs.ErrNotExist where there is no such file.
	Bus() (sent, received float64, err error)
	// HasBus reports whether there is pcie_bw, without reading it.
	HasBus() bool
}

// Call is what one kind of call has cost; see collector.CallMeter.
type Call struct {
	Name  string
	Count uint64
	Time  time.Duration
}

// Meter is an optional ability of a Handle. Calls may run beside Read. The slice
// is the caller's.
type Meter interface{ Calls() []Call }
