package sampler

import (
	"cmp"
	"slices"
	"time"

	"go.uber.org/zap"
)

// status tells the state of the collector and its devices. Any goroutine.
func (k *keeper) status(now time.Time) CollectorStatus {
	st := CollectorStatus{Name: k.name}
	if p := k.problem.Load(); p != nil {
		st.Cause, st.Reason = p.cause, p.reason
	}
	b := k.current.Load()
	if b == nil {
		st.Devices = k.parted(st.Cause, st.Reason, now)
		return st
	}
	st.Up = true
	for _, w := range b.workers {
		for i := range w.view.Devices {
			st.Devices = append(st.Devices, w.device(i, now))
		}
	}
	present := len(st.Devices)
	st.Devices = k.missing.append(st.Devices, now)
	slices.SortFunc(st.Devices[present:], func(a, b DeviceStatus) int { return cmp.Compare(a.Device.ID, b.Device.ID) })
	return st
}

// tellChanges logs each device whose state is not what was logged last.
func (k *keeper) tellChanges() {
	seen := make(map[string]string, len(k.told))
	for _, d := range k.status(time.Now()).Devices {
		id, state := d.Device.ID, d.State.String()
		if d.Cause == CauseStarting {
			state = k.told[id] // not a change yet
		}
		seen[id] = state
		was := k.told[id]
		if was == state || (was == "" && state == Up.String()) {
			continue
		}
		if was == Released.String() && d.State == Up || d.State == Released {
			continue // said once, of the collector
		}
		log := k.log.With(zap.String("device", id), zap.String("gpu", d.Device.GPU), zap.String("state", state))
		if d.State == Up {
			log.Info("device is up again")
		} else {
			log.Warn("device is not up", zap.String("cause", string(d.Cause)), zap.String("reason", d.Reason), zap.Time("last_sample", d.LastSample))
		}
	}
	k.told = seen
}
