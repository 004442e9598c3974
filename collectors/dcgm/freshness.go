package dcgm

import (
	"fmt"
	"time"

	"warpgauge/pkg/collector"
)

// freshness watches the time stamps of a device's values. DCGM answers with the
// last value for ever, also when the driver hangs; that its time stamps stand
// still is the only sign.
type freshness struct {
	patience time.Duration
	read     bool      // the engine has read something of the device
	moved    time.Time // of our clock: when a stamp last changed
}

// newFreshness is told how often the engine reads the device's fastest value.
func newFreshness(every time.Duration, now time.Time) freshness {
	return freshness{patience: max(4*every, 3*time.Second), moved: now}
}

// see is told whether a time stamp differs from the one before. One that was set
// back with the engine's clock does, too.
func (f *freshness) see(moved bool, now time.Time) {
	if moved {
		f.read, f.moved = true, now
	}
}

// verdict is nil for a device whose values move.
func (f *freshness) verdict(now time.Time) error {
	still := now.Sub(f.moved)
	switch {
	case !f.read && still <= f.patience:
		return errNoValueYet
	case !f.read:
		return fmt.Errorf("%w: the host engine has read no value of it for %v", collector.ErrStalled, still.Round(time.Second))
	case still > f.patience:
		return fmt.Errorf("%w: the host engine has read no new value for %v", collector.ErrStalled, still.Round(time.Second))
	}
	return nil
}

// errNoValueYet is of a device whose first poll is under way. It is not sampled
// yet, so that at a reload the values that there are stay until then.
var errNoValueYet = fmt.Errorf("%w: the host engine is reading it for the first time", collector.ErrStalled)
