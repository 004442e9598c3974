package health

import (
	"slices"
	"time"

	"go.uber.org/zap"

	"warpgauge/extensions/health/pci"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
)

// updateDevices applies the device states of all collectors.
func (w *Watch) updateDevices(all []session.CollectorStatus, now time.Time) {
	for i := range all {
		for j := range all[i].Devices {
			w.updateDevice(&all[i], &all[i].Devices[j], now)
		}
	}
	kept := w.devices[:0]
	for _, t := range w.devices {
		switch {
		case t.status != nil && t.round == w.round:
			w.judgeState(t, now)
		case !w.judgeAbsence(t, all, now):
			w.forget(t)
			continue
		}
		t.status = nil
		kept = append(kept, t)
	}
	clear(w.devices[len(kept):])
	w.devices = kept
}

// updateDevice records a device's status. If several collectors report the device, the highest rank counts.
func (w *Watch) updateDevice(c *session.CollectorStatus, d *session.DeviceStatus, now time.Time) {
	if d.Device.Level == field.Link || d.Device.Level == field.Core {
		return
	}
	t := w.byID[d.Device.ID]
	if t == nil {
		if t = w.trackDevice(&d.Device, c.Name); t == nil {
			return
		}
	}
	rank := d.Rank(w.supplies[d.Device.ID] == c.Name)
	if t.round == w.round && rank <= t.rank {
		return
	}
	if t.restored || t.collector != c.Name || t.device.PCIBusID != d.Device.PCIBusID || t.device.GPU != d.Device.GPU {
		w.bindDevice(t, &d.Device, c.Name)
	}
	t.round, t.rank, t.status, t.seen = w.round, rank, d, now
}

// trackDevice tracks a device.
func (w *Watch) trackDevice(d *collector.Device, of string) *tracked {
	if len(w.devices) >= maxDevices {
		return nil
	}
	t := &tracked{device: *d, collector: of, dirty: true, gone: of == "" && d.Level != field.Switch, named: map[int]time.Time{}}
	w.devices = append(w.devices, t)
	w.byID[d.ID] = t
	w.bindDevice(t, d, of)
	return t
}

// bindDevice gives a device the collector's data. It merges what was recorded for the board by
// address, and forgets another device that was at that address.
func (w *Watch) bindDevice(t *tracked, d *collector.Device, of string) {
	t.device, t.collector, t.restored, t.dirty = *d, of, false, true
	w.regrouped = true
	at := address(d.PCIBusID)
	if at == (pci.Address{}) || d.Parent != "" || of == "" {
		return
	}
	if before := w.byPCI[at]; before != nil && before != t {
		if before.collector == "" {
			moved := before.conditions
			before.conditions = nil
			for _, c := range moved {
				if c.active && t.find(c.rule.Name).inactive() && c.rule.Name != ReasonMissing {
					t.conditions = append(t.conditions, c)
				}
			}
		}
		before.seen = time.Time{} // forget it, unless a collector still reports it
	}
	w.byPCI[at] = t
}

func (w *Watch) forget(t *tracked) {
	if t.device.Parent == "" && t.collector != "" {
		w.log.Info("device is forgotten: it was replaced, deselected or missing for a week, or its collector is off", zap.String("device", t.device.ID), zap.String("gpu", t.device.GPU))
	}
	delete(w.byID, t.device.ID)
	if at := address(t.device.PCIBusID); w.byPCI[at] == t {
		delete(w.byPCI, at)
	}
	w.regrouped, w.unsaved = true, true
}

// setCondition sets or clears a condition that depends on device states.
func (w *Watch) setCondition(t *tracked, name string, holds bool, now time.Time, why string) {
	switch c, rule := t.find(name), w.o.Rules.find(name); {
	case rule != nil && holds:
		c = t.condition(rule)
		e := events.Evidence{}
		if why != "" && c.needsEvidence(now) {
			e = events.Evidence{Time: now, Source: t.collector, Text: why}
		}
		t.raise(c, now, e)
	case c == nil:
	case c.rule.End == WhenTold: // the state decides
		t.end(c)
		c.evidence = nil
	default:
		t.clear(c, now)
		if !c.active {
			c.evidence = nil
		}
	}
}

func (t *tracked) setGone(gone bool) { t.gone, t.dirty = gone, t.dirty || gone != t.gone }

// judgeState judges a device by the state in its collector's report.
func (w *Watch) judgeState(t *tracked, now time.Time) {
	d := t.status
	if d.State == session.Up && !d.LastSample.IsZero() && !t.valued {
		t.valued, t.dirty = true, true
	}
	if d.State != session.Up {
		t.silent = now
	}
	hung := d.Cause == session.CauseStuck || d.Cause == session.CauseHung
	starting := d.Cause == session.CauseStarting
	stalled := d.State == session.Stalled && !starting
	c := t.find(ruleStalled)
	// Without values for minutes it does not answer, unless it answers another call.
	t.setGone(hung || d.State == session.Lost || d.State == session.Absent || stalled && t.find(ruleOneCall).inactive() && !c.inactive() && now.Sub(c.since) >= 5*time.Minute)
	w.setCondition(t, ruleStarting, starting, now, "")
	why := d.Reason
	if d.State == session.Up && t.blank {
		why = "the library answers, and no reading has a value"
	}
	w.setCondition(t, ruleStalled, stalled || d.State == session.Absent && now.Sub(d.LastSample) > handover || d.State == session.Up && t.blank, now, why)
	w.setCondition(t, ruleFails, stalled && d.Cause == session.CauseError, now, d.Reason)
	oneCall := d.Cause == session.CauseOneCall
	for name, holds := range map[string]bool{ruleHung: hung, ruleOneCall: oneCall} { // until it answers
		if c := t.find(name); hung || oneCall || d.State == session.Up && c != nil && (d.LastSample.After(c.last) || c.last.After(now)) {
			w.setCondition(t, name, holds, now, d.Reason)
		}
	}
	lost := d.State == session.Lost || d.State == session.Absent && !t.find(ruleLost).inactive() // until it is back
	w.setCondition(t, ruleLost, lost, now, d.Reason)
	w.setCondition(t, ReasonMissing, d.State == session.Absent, now, d.Reason)
	w.setCondition(t, ruleReleased, d.State == session.Released, now, d.Reason)
	w.setCondition(t, ruleNotServed, false, now, "")
}

// judgeAbsence judges a device that no collector reports. It returns false if the Watch should forget the device.
func (w *Watch) judgeAbsence(t *tracked, all []session.CollectorStatus, now time.Time) bool {
	if t.collector == "" { // known only by its address
		return slices.ContainsFunc(t.conditions, func(c *condition) bool { return c.active || !c.holds.IsZero() })
	}
	if slices.ContainsFunc(all, func(c session.CollectorStatus) bool { return !c.Up && c.Cause == session.CauseOpening }) {
		w.setCondition(t, ruleStarting, true, now, "")
		return true
	}
	i := slices.IndexFunc(all, func(c session.CollectorStatus) bool { return c.Name == t.collector })
	switch {
	case i < 0, t.device.Parent != "", t.device.Level != field.GPU, now.Sub(t.seen) > forgetAfter, !t.valued && t.device.PCIBusID == "":
		// Its collector is off, devices of its level come and go by configuration, or it was only a number.
		return false
	case !all[i].Up && all[i].Cause == session.CauseStandby:
		w.setCondition(t, ReasonMissing, true, now, "the collector in service does not find it")
	case !all[i].Up && all[i].Cause == session.CauseReleased:
		w.setCondition(t, ruleReleased, true, now, all[i].Reason)
	case !all[i].Up:
		w.setCondition(t, ruleNotServed, true, now, all[i].Reason)
	default:
		t.setGone(true)
		w.setCondition(t, ruleStarting, false, now, "")
		w.setCondition(t, ruleNotServed, false, now, "")
		w.setCondition(t, ruleStalled, now.Sub(t.seen) > handover, now, "the driver does not have it")
		w.setCondition(t, ReasonMissing, true, now, "the driver does not have it")
	}
	return true
}
