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
	if errors.Is(err, collector.ErrDeviceLost) || errors.Is(err, collector.ErrOutdated) {
		w.notify(err)
	}
	if i, ok := deviceOf(err); ok && i >= 0 && i < len(w.errs) {
		w.errs[i] = err
		return
	}
	for i := range w.errs {
		w.errs[i] = err
	}
}

// deviceOf returns the device that err names. A bare DeviceError, which a lost
// board gives on each tick, costs no allocation.
func deviceOf(err error) (int, bool) {
	if one, ok := err.(*collector.DeviceError); ok { //nolint:errorlint // the fast path; wrapped ones come next
		return one.Device, true
	}
	return wrappedDevice(err)
}

func wrappedDevice(err error) (int, bool) {
	var one *collector.DeviceError
	if errors.As(err, &one) {
		return one.Device, true
	}
	return 0, false
}
