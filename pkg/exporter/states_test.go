package exporter

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
)

// check compares the texts of events.
func checkTexts(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// texts receives the queued events.
func texts(s *events.Subscription) (out []string) {
	for len(s.C) > 0 {
		out = append(out, (<-s.C).Text)
	}
	return out
}

// TestStates: a change is published once, for the GPU. Since covers all devices.
func TestStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b events.Bus
		s, sub := NewStates(&b, nil), b.Subscribe(16)
		gpu := session.DeviceStatus{Device: collector.Device{ID: "a", Level: field.GPU}}
		link := session.DeviceStatus{Device: collector.Device{ID: "l", Level: field.Link, Parent: "a"}}
		all := []session.CollectorStatus{{Name: "x", Up: true, Devices: []session.DeviceStatus{gpu, link}}, {Name: "y", Cause: session.CauseNotLoaded}}
		set := func(state session.State) {
			time.Sleep(time.Second)
			for i := range all[0].Devices {
				all[0].Devices[i].State, all[0].Devices[i].Cause = state, ""
			}
			s.Update(all)
			s.Update(all)
		}
		set(session.Up)
		checkTexts(t, "the start", texts(sub), []string{"collector x is up"})
		set(session.Lost)
		checkTexts(t, "a device that is lost", texts(sub), []string{"device is lost"})
		lost := time.Now().UTC().Truncate(time.Millisecond)
		time.Sleep(time.Minute)
		s.Update(all)
		for _, id := range []string{"a", "l"} {
			if since, ok := s.Since("x", id, session.Lost); !ok || !since.Equal(lost) {
				t.Errorf("%s is lost since %v (%v), want %v", id, since, ok, lost)
			}
		}
		if _, ok := s.Since("x", "a", session.Up); ok {
			t.Error("a lost device is known as up")
		}
	})
}

// TestStatesThatAreBad: an event is bad unless an operator asked for the state. It names the GPU instead of its parts.
func TestStatesThatAreBad(t *testing.T) {
	var b events.Bus
	s, sub := NewStates(&b, nil), b.Subscribe(16)
	c := session.CollectorStatus{Name: "x", Devices: []session.DeviceStatus{
		{Device: collector.Device{ID: "a", Level: field.GPU}}, {Device: collector.Device{ID: "l", Level: field.Link, Parent: "a"}},
	}}
	f := func(what string, want ...string) {
		t.Helper()
		s.Update([]session.CollectorStatus{c})
		var got []string
		for len(sub.C) > 0 {
			e := <-sub.C
			text := e.Text
			if e.Device != nil {
				text = e.Device.ID + ": " + text
			}
			if e.Bad {
				text = "bad: " + text
			}
			got = append(got, text)
		}
		checkTexts(t, what, got, want)
	}
	collectorIs := func(up bool, cause session.Cause, reason string) { c.Up, c.Cause, c.Reason = up, cause, reason }
	gpuIs := func(state session.State, reason string) {
		for i := range c.Devices {
			c.Devices[i].State, c.Devices[i].Reason = state, reason
		}
	}
	collectorIs(false, session.CauseError, "no answer")
	f("an error at the start", "bad: collector x is not up: no answer")
	collectorIs(true, "", "")
	f("it is over", "collector x is up")
	collectorIs(false, session.CauseOpening, "opening")
	f("between two sessions")
	collectorIs(true, "", "")
	f("the next session")
	collectorIs(false, session.CauseReleased, "released")
	f("a release", "collector x is not up: released")
	collectorIs(false, session.CauseStandby, "standby")
	f("a standby", "collector x is not up: standby")
	collectorIs(false, session.CauseNotLoaded, "no driver")
	f("a driver that was unloaded", "collector x is not up: no driver")
	gpuIs(session.Lost, "XID 79")
	f("a GPU that is lost", "bad: a: device is lost: XID 79")
	gpuIs(session.Released, "")
	f("a GPU that is released", "a: device is released")
	gpuIs(session.Up, "on time")
	f("a GPU that is back", "a: device is up")
}
