// Package collector is the contract between a session and what reads a
// vendor's library. A collector lives in collectors/<vendor>, is built by a
// Factory and never imports another collector.
//
// What a session (package session) promises: Open is called once, from one
// goroutine, with a deadline in ctx. Each Source is sampled by one goroutine,
// never concurrently with itself; different sources run concurrently. Close is
// called once, after every Sample and Rescan has returned; if one never returns,
// Close is never called, and the process that it runs in is ended or left alone.
// In one process at most one collector of a kind is open at any time. To reload or
// to rediscover, it is closed and another one from the same Factory is opened.
package collector

import (
	"context"

	"warpgauge/pkg/field"
)

// Factory makes an unopened collector. It must not touch hardware or libraries.
type Factory func() Collector

// Collector opens one vendor library.
type Collector interface {
	// Name is the vendor library's short name: "nvml", "dcgm", "rocm", "fake".
	Name() string

	// Open loads the library, finds devices and binds fields to each once.
	// It returns at least one source with columns, or an error that says what was
	// looked for, where, and what to do. Errors: ErrNotBuiltIn, ErrNotLoaded,
	// ErrNoDevices, ErrNothingToRead, ErrOutdated, wrapped; anything else is
	// retried with back-off, too. Nothing stays open after an error.
	// A single broken device must not fail or delay Open: its source says so.
	Open(ctx context.Context, fields field.List) ([]Source, error)

	// Close releases what Open took. It can be called twice.
	Close() error
}

// Source is the unit that is sampled alone: one per GPU for NVML and ROCm SMI,
// one per host engine for DCGM.
type Source interface {
	// Devices are those whose values the source supplies. The result is fixed
	// for the life of the source, shared, and must not be changed.
	Devices() []Device

	// Columns says what each cell of a row is. Fixed and shared like Devices.
	Columns() []Column

	// Sample reads the due columns into row.
	// Shape: len(row) = len(due) = len(Columns()); row[i] belongs to column i.
	// Unit: that of the column's field.Descriptor. A blank reading (not
	// supported, no permission, vendor's sentinel) is NaN, never 0.
	// On entry row[i] holds the last value; cells with due[i] false keep it.
	// Cells of event columns (Descriptor.Event) are NaN on entry.
	// Neither slice is kept after return. No allocation in steady state.
	// Errors: ErrDeviceLost, ErrStalled or any other error concern all devices
	// of the source, unless wrapped in a DeviceError (several: errors.Join);
	// the devices not named were sampled. ErrColumnsChanged and
	// ErrOutdated ask for another session: devices, columns or labels are no longer what
	// they were, or the library no longer fits the driver.
	Sample(row []float64, due []bool) error
}

// Dater is an optional ability of a Source whose library keeps what it has read: Dated
// returns when the values of a device that were read least recently were read, of those
// that are read most often; Unix ns, 0 if that is not known. It is called after each Sample.
type Dater interface {
	Dated(device int) int64
}

// Resumer is an optional ability of a Collector whose library keeps a history of XIDs. Resume
// gets, before Open, the last field.XIDsUntil of each device by its ID, so that Open's
// sources begin with the XIDs that no former session has reported.
type Resumer interface {
	Resume(until map[string]int64)
}

// MaxGPUs is how many GPUs of one library are used, however many it counts: more than a node
// has. The same goes for switches and network adapters. See Limited.
const MaxGPUs = 256

// Limited is an optional ability of a Collector: LeftOut returns how many devices Open did not
// use because the library counts more than MaxGPUs, or because they cannot be distinguished from
// others. The session says so, and counts them. It is called after Open has returned, by the
// same goroutine.
type Limited interface {
	LeftOut() int
}

// Rescanner is an optional ability of a Collector: Rescan looks, cheaply and
// without disturbing the sources, whether Open would now find other devices.
// It may run concurrently with Sample, never with Close.
type Rescanner interface {
	Rescan(ctx context.Context) (changed bool, err error)
}
