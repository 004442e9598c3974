package session

import (
	"errors"
	"slices"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/view"
)

// State is the state of a device.
type State uint8

// States of a device.
const (
	Up       State = iota // the last sample succeeded
	Stalled               // a call hangs or returns no values; the device may still exist
	Lost                  // the library reports it as gone
	Absent                // discovery no longer finds it
	Released              // not sampled: an operator has released the collector

	LastState = Released
)

func (s State) String() string { return [...]string{"up", "stalled", "lost", "absent", "released"}[s] }

// Cause is a reason from a short fixed list, usable as a label.
type Cause string

// Causes.
const (
	CauseNone      Cause = ""
	CauseStarting  Cause = "starting"     // not sampled yet
	CauseHung      Cause = "hung_call"    // a library call for this device exceeds the deadline
	CauseBlocked   Cause = "blocked_call" // a library call for several GPUs does, whichever of them hangs
	CauseOneCall   Cause = "one_call"     // a library call for this device does, and another one returns
	CauseFrozen    Cause = "stale_values" // the vendor's timestamps do not advance, or Open waits for the device
	CauseError     Cause = "error"        // the library returned an error
	CauseLost      Cause = "lost"         // the library reports the device as lost
	CauseVanished  Cause = "vanished"     // discovery no longer finds the device
	CauseNotBuilt  Cause = "not_built_in"
	CauseNotLoaded Cause = "not_loaded"
	CauseMismatch  Cause = "version_mismatch" // library and daemon are incompatible
	CauseNoDevices Cause = "no_devices"
	CauseOpening   Cause = "opening"  // Open has not returned
	CauseOutdated  Cause = "outdated" // the open library no longer matches the driver
	CauseNothing   Cause = "nothing_to_read"
	CauseChanged   Cause = "changed"      // devices have changed: the session ends and the next one follows
	CauseReleased  Cause = "released"     // an operator has released it
	CauseStandby   Cause = "standby"      // another collector serves its devices
	CauseChild     Cause = "child_exited" // the sampling process has ended; another one is started
	CauseStuck     Cause = "child_stuck"  // the sampling process was killed and does not end
)

// Quiet reports whether the cause means that this machine has nothing for the collector, which is not a fault.
func (c Cause) Quiet() bool {
	switch c {
	case CauseNotBuilt, CauseNotLoaded, CauseNoDevices, CauseNothing:
		return true
	}
	return false
}

// Hangs reports whether a library call does not return.
func (c Cause) Hangs() bool { return c == CauseHung || c == CauseBlocked || c == CauseOneCall }

// CollectorStatus is the state of one collector.
type CollectorStatus struct {
	Name    string
	Up      bool      // opened and bound; its devices may still be stalled
	Cause   Cause     // why it is not up, or why a change waits
	Reason  string    // the cause in words: the last error of Open
	Since   time.Time // when the session in service began to serve; zero if there is none
	Devices []DeviceStatus
}

// Opened reports whether every collector has been opened or reports why not, and every device has been sampled or reports
// why not.
func Opened(all []CollectorStatus) bool {
	for _, c := range all {
		starting := func(d DeviceStatus) bool { return d.Cause == CauseStarting }
		if !c.Up && c.Cause == CauseOpening || slices.ContainsFunc(c.Devices, starting) {
			return false
		}
	}
	return true
}

// DeviceStatus is the state of one device.
type DeviceStatus struct {
	Device     collector.Device
	State      State
	Cause      Cause
	Reason     string    // in words, empty when up
	LastSample time.Time // of the last success; zero if there was none
}

// Device is a device with the collector whose status counts, and its source.
type Device struct {
	*DeviceStatus
	Collector *CollectorStatus
	Source    *view.Source // nil if the View has no source of the collector with this device
	Index     int          // in Source.Devices
}

// Rank orders the statuses that several collectors have of a device. The page shows the values of the first one; then
// come those that have it up.
func (d *DeviceStatus) Rank(shown bool) (rank int) {
	if shown {
		rank = 2
	}
	if d.State == Up {
		rank++
	}
	return rank
}

// Devices returns each device of the collectors once, with the status of the highest Rank, or the first of those.
func Devices(v *view.View, all []CollectorStatus) (out []Device) {
	type key struct{ collector, id string }
	shown, at := map[key]Device{}, map[string]int{}
	for _, s := range slices.Backward(v.Sources) { // the first source serves a device
		for i := range s.Devices {
			shown[key{s.Collector, s.Devices[i].ID}] = Device{Source: s, Index: i}
		}
	}
	for i := range all {
		for j := range all[i].Devices {
			d := shown[key{all[i].Name, all[i].Devices[j].Device.ID}]
			d.DeviceStatus, d.Collector = &all[i].Devices[j], &all[i]
			if before, known := at[d.Device.ID]; !known {
				at[d.Device.ID] = len(out)
				out = append(out, d)
			} else if d.Rank(d.Source != nil) > out[before].Rank(out[before].Source != nil) {
				out[before] = d
			}
		}
	}
	return out
}

// outcome is the result of one call for one device. Outcomes are created when a state changes rather than on each tick,
// and are immutable.
type outcome struct {
	state  State
	cause  Cause
	reason string
	err    error
}

var (
	outcomeUp       = &outcome{}
	outcomeStarting = &outcome{state: Stalled, cause: CauseStarting, reason: "not sampled yet"}
)

func outcomeOf(err error) *outcome {
	o := &outcome{state: Stalled, cause: CauseError, reason: err.Error(), err: err}
	switch {
	case errors.Is(err, collector.ErrDeviceLost):
		o.state, o.cause = Lost, CauseLost
	case errors.Is(err, collector.ErrStalled):
		o.cause = CauseFrozen
	case errors.Is(err, collector.ErrHung):
		o.cause = CauseHung
	}
	return o
}

// CauseOf returns the cause for an error of Session.Run.
func CauseOf(err error) Cause {
	for _, c := range [...]struct {
		err   error
		cause Cause
	}{
		{nil, CauseNone}, {collector.ErrOutdated, CauseOutdated}, {collector.ErrMismatch, CauseMismatch}, {collector.ErrNothingToRead, CauseNothing},
		{collector.ErrNotBuiltIn, CauseNotBuilt}, {collector.ErrNotLoaded, CauseNotLoaded}, {collector.ErrNoDevices, CauseNoDevices},
		{collector.ErrColumnsChanged, CauseChanged},
	} {
		if errors.Is(err, c.err) {
			return c.cause
		}
	}
	return CauseError
}
