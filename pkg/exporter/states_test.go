package exporter

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"warpgauge/collectors/fake"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// TestStates: a change is published once, for the GPU instead of its parts, and is bad unless an operator asked for the
// state. Since covers all devices.
func TestStates(t *testing.T) {
	var b events.Bus
	now := time.Unix(1000, 0).UTC()
	s, sub := NewStates(&b, func() time.Time { return now }), b.Subscribe(16)
	c := session.CollectorStatus{Name: "x", Devices: []session.DeviceStatus{
		{Device: collector.Device{ID: "a", Level: field.GPU}}, {Device: collector.Device{ID: "l", Level: field.Link, Parent: "a"}},
	}}
	f := func(what string, want ...string) {
		t.Helper()
		now = now.Add(time.Minute)
		s.Update(new(view.Board).Load(), []session.CollectorStatus{c})
		s.Update(new(view.Board).Load(), []session.CollectorStatus{c})
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
		testkit.ErrorIf(t, !slices.Equal(got, want), "%s: got %q, want %q", what, got, want)
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
	lost := now
	f("nothing new")
	for _, id := range []string{"a", "l"} {
		since, ok := s.Since(id, session.Lost)
		testkit.ErrorIf(t, !ok || !since.Equal(lost), "%s is lost since %v (%v), want %v", id, since, ok, lost)
	}
	_, ok := s.Since("a", session.Up)
	testkit.ErrorIf(t, ok, "a lost device is known as up")
	gpuIs(session.Released, "")
	f("a GPU that is released", "a: device is released")
	gpuIs(session.Up, "on time")
	f("a GPU that is back", "a: device is up")
}

// TestStatesOfTheCollectorShown: a GPU is up if the collector that the page shows has it up.
func TestStatesOfTheCollectorShown(t *testing.T) {
	var b events.Bus
	s, sub, gpu := NewStates(&b, time.Now), b.Subscribe(1, events.DeviceState), collector.Device{ID: "a", Level: field.GPU}
	s.Update(&view.View{Sources: []*view.Source{{Collector: "nvml", Devices: []collector.Device{gpu}}}}, []session.CollectorStatus{
		{Name: "dcgm", Up: true, Devices: []session.DeviceStatus{{Device: gpu, State: session.Stalled}}},
		{Name: "nvml", Up: true, Devices: []session.DeviceStatus{{Device: gpu}}},
	})
	_, up := s.Since("a", session.Up)
	testkit.ErrorIf(t, !up || len(sub.C) > 0, "up: %v, %d events", up, len(sub.C))
}

// TestStatesOfTheCore: a lost device is an event without any extension, such as live, which shows states.
func TestStatesOfTheCore(t *testing.T) {
	a, cfg := newProgram(t, fake.Options{Spec: &fake.Spec{Faults: []fake.Fault{{Kind: fake.Lost, GPUs: fake.All()}}}})
	synctest.Test(t, func(t *testing.T) {
		p := testkit.Get(a.NewPipeline(cfg, parse(t, "DCGM_FI_DEV_GPU_TEMP, gauge, t\n"), zap.NewNop()))(t)
		p.AddPages()
		lost := p.Events.Subscribe(1, events.DeviceState)
		testkit.Start(t, func(ctx context.Context) error { return RunStages(ctx, zap.NewNop(), p.Stages()...) })
		e := <-lost.C
		testkit.ErrorIf(t, e.Device == nil || !e.Bad, "event %+v, want that a GPU is lost", e)
	})
}
