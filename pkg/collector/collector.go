// Package collector is the contract between a session and the code that reads a vendor's library. A collector lives in
// collectors/<vendor>, is created by a Factory and never imports another collector.
//
// A session (package session) guarantees: it calls Open once, from one goroutine, with a deadline in ctx. One goroutine
// samples each Source; different sources run concurrently. The session calls Close once, after every Sample and Rescan
// has returned. If one never returns, it never calls Close, and the process is ended or abandoned. At most one collector
// of a kind is open in a process at any time. To reload or to rediscover, the session closes it and opens another one
// from the same Factory.
package collector

import (
	"context"

	"warpgauge/pkg/field"
)

// Factory creates an unopened collector. It must not touch hardware or libraries.
type Factory func() Collector

// Collector opens one vendor library.
type Collector interface {
	// Name is the vendor library's short name: "nvml", "dcgm", "rocm", "fake".
	Name() string

	// Open loads the library, finds devices and binds fields to each once. It returns at least one source with columns,
	// or an error that names the missing object, the places searched, and the remedy. Errors: ErrNotBuiltIn,
	// ErrNotLoaded, ErrNoDevices, ErrNothingToRead, ErrOutdated, wrapped, or any other. The session retries all with
	// back-off. Nothing stays open after an error. A single broken device must not fail or delay Open: its source reports it.
	Open(ctx context.Context, fields field.List) ([]Source, error)

	// Close releases everything that Open acquired. It may be called twice.
	Close() error
}

// Source is the unit of sampling: one per GPU for NVML and ROCm SMI, one per host engine for DCGM.
type Source interface {
	// Devices returns the devices whose values the source supplies. The result is fixed for the life of the source,
	// shared, and must not be changed.
	Devices() []Device

	// Columns describes each cell of a row. It is fixed and shared like Devices.
	Columns() []Column

	// Sample reads the due columns into row.
	// Shape: len(row) = len(due) = len(Columns()); row[i] belongs to column i.
	// Unit: that of the column's field.Descriptor. A blank reading (not supported, no permission, vendor's sentinel) is
	// NaN, never 0.
	// On entry row[i] holds the last value; cells with due[i] false keep it. Cells of event columns (Descriptor.Event) are
	// NaN on entry. Neither slice is kept after return. No allocation in steady state.
	// Errors: ErrDeviceLost, ErrStalled, ErrHung or any other error concern all devices of the source, unless wrapped in a
	// DeviceError (join several with errors.Join): the devices not named were sampled. ErrColumnsChanged and ErrOutdated
	// request another session: devices, columns or labels have changed, or the library no longer fits the driver.
	Sample(row []float64, due []bool) error
}

// Dater is an optional ability of a Source whose library caches values. Dated returns when the library read the oldest of
// a device's fastest readings, Unix ns; 0 if unknown. The session calls it after each Sample.
type Dater interface {
	Dated(device int) int64
}

// Silent is an optional ability of a Source without columns: a session tells that its device hangs or is lost.
type Silent interface{ Silent() bool }

// Resumer is an optional ability of a Collector whose library keeps a history of XIDs. Before Open, Resume receives the last
// field.XIDsUntil of each device by ID, so that the sources start with the XIDs that no earlier session has reported.
type Resumer interface {
	Resume(until map[string]int64)
}

// Keeper is an optional ability of a Collector whose events have no history: its event sets stay open from one session
// to the next in the same process, so that no event is missed.
type Keeper interface {
	// Keep makes Close leave the event sets open. Keep is called before Open.
	Keep()
	// Inherit takes over the event sets of a closed collector of the same Factory. It is called once, before Open. Open
	// closes the sets that it does not use.
	Inherit(closed Collector)
	// Release closes the event sets that Close has left open and no other Collector has inherited. It may hang.
	Release()
}

// MaxGPUs is the maximum number of GPUs that a collector uses per library, and likewise of switches and network adapters.
// No node has more. See Limited.
const MaxGPUs = 256

// Limited is an optional ability of a Collector. LeftOut returns how many devices Open skipped because the library
// reports more than MaxGPUs or because they are indistinguishable. The session calls LeftOut after Open, from the same
// goroutine, and reports the number.
type Limited interface {
	LeftOut() int
}

// Rescanner is an optional ability of a Collector. Rescan checks, cheaply and without disturbing the sources, whether
// Open would now find other devices. It may run concurrently with Sample, but not with Close.
type Rescanner interface {
	Rescan(ctx context.Context) (changed bool, err error)
}
