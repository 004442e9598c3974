package sampler

import (
	"errors"

	"warpgauge/pkg/collector"
)

// blame spreads the error of a Sample over the devices: a DeviceError concerns
// one, a joined error each of its parts, anything else all. ErrColumnsChanged
// concerns none, the values are good; it only asks for a new Open.
func (w *worker) blame(err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			w.blame(e)
		}
		return
	}
	if errors.Is(err, collector.ErrColumnsChanged) {
		w.notify(err)
		return
	}
	if errors.Is(err, collector.ErrDeviceLost) {
		w.notify(err)
	}
	var one *collector.DeviceError
	if errors.As(err, &one) && one.Device >= 0 && one.Device < len(w.errs) {
		w.errs[one.Device] = err
		return
	}
	for i := range w.errs {
		w.errs[i] = err
	}
}
