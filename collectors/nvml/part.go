//go:build linux && cgo

package nvml

import (
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

// target is a device that a part asks: a GPU, one of its instances or its links.
type target struct {
	device int     // index in the source's devices
	raw    uintptr // nvmlDevice_t; of a link that of its GPU, of a vGPU nvmlVgpuInstance_t
	level  field.Level
	link   uint32 // of a link, from 0
}
