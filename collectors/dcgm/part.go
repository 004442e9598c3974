//go:build linux && cgo

package dcgm

import "warpgauge/pkg/collector"

// part supplies some columns of a source. Its sample is called by the goroutine
// of that source alone.
type part interface {
	// columns is fixed for the part's life. Device is the index in the source's
	// devices.
	columns() []collector.Column

	// sample fills the due cells; row[i] and due[i] belong to columns()[i]. A value
	// that is not to be had is NaN. An error concerns all devices of the source,
	// unless it is a collector.DeviceError.
	sample(row []float64, due []bool) error

	// calls is what the part's library calls have cost since Open. It may run
	// concurrently with sample and does not wait for it.
	calls() []collector.CallCost

	// close takes watches and groups back. No sample is in progress.
	close()
}
