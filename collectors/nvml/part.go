//go:build linux && cgo

package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// part supplies some columns of a GPU's source. Its sample is called by the
// goroutine of that source alone.
type part interface {
	// columns is fixed for the part's life. Device is the index in the source's
	// devices.
	columns() []collector.Column

	// sample fills the due cells; row[i] and due[i] belong to columns()[i]. A value
	// that is not to be had is NaN. An error concerns the whole GPU, unless it is a
	// collector.DeviceError.
	sample(row []float64, due []bool) error

	// calls is what the part's library calls have cost since Open. It may run
	// concurrently with sample and does not wait for it.
	calls() []collector.CallCost

	close()
}

// target is a device that a part asks: a GPU or one of its instances.
type target struct {
	device int         // index in the source's devices
	handle nvml.Device // go-nvml's
	raw    uintptr     // the same as nvmlDevice_t, for calls of our own
	level  field.Level
	arch   nvml.DeviceArchitecture
}
