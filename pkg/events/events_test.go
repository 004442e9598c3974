package events

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
)

// texts receives what waits.
func texts(s *Subscription) (out []string) {
	for {
		select {
		case e, open := <-s.C:
			if !open {
				return append(out, "closed")
			}
			out = append(out, e.Text)
		default:
			return out
		}
	}
}

func check(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestBus(t *testing.T) {
	var b Bus
	b.Publish(Event{Text: "no subscriber"})
	all, xids := b.Subscribe(8), b.Subscribe(8, XID, Clock)
	b.Publish(Event{Kind: XID, Text: "1"})
	b.Publish(Event{Kind: Reload, Text: "2"})
	check(t, "all kinds", texts(all), []string{"1", "2"})
	check(t, "some kinds", texts(xids), []string{"1"})
	b.Publish(Event{Kind: Clock, Text: "3"})
	xids.Close()
	xids.Close()
	b.Publish(Event{Kind: XID, Text: "4"})
	check(t, "all kinds, of which one has left", texts(all), []string{"3", "4"})
	check(t, "what waited when it left", texts(xids), []string{"3", "closed"})
	(*Bus)(nil).Publish(Event{})
}

// TestSlowSubscriber: of too many events the first ones stay, and Publish does not wait.
func TestSlowSubscriber(t *testing.T) {
	var b Bus
	slow, quick := b.Subscribe(2), b.Subscribe(8)
	for i := range 5 {
		b.Publish(Event{Text: fmt.Sprint(i)})
	}
	check(t, "the slow one", texts(slow), []string{"0", "1"})
	check(t, "the quick one", texts(quick), []string{"0", "1", "2", "3", "4"})
	if slow.Dropped() != 3 || quick.Dropped() != 0 {
		t.Errorf("dropped %d and %d, want 3 and 0", slow.Dropped(), quick.Dropped())
	}
}

type oddOnly struct{}

func (oddOnly) Admit(e Event) bool { return e.Code%2 == 1 }

func TestGate(t *testing.T) {
	b := Bus{Gate: oddOnly{}}
	s := b.Subscribe(8)
	for i := range 4 {
		b.Publish(Event{Code: i, Text: fmt.Sprint(i)})
	}
	check(t, "what the gate admits", texts(s), []string{"1", "3"})
}

// TestHammer: publishers and subscribers that come and go.
func TestHammer(t *testing.T) {
	var b Bus
	var publishers, subscribers sync.WaitGroup
	const each = 2000
	kept := b.Subscribe(4 * each)
	done := make(chan bool)
	for range 4 {
		publishers.Go(func() {
			for range each {
				b.Publish(Event{Kind: XID})
			}
		})
		subscribers.Go(func() {
			for {
				s := b.Subscribe(1)
				select {
				case <-s.C:
				case <-done:
				}
				s.Close()
				_ = s.Dropped()
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	publishers.Wait()
	close(done)
	subscribers.Wait()
	if got := len(kept.C); got != 4*each {
		t.Errorf("%d events, want %d", got, 4*each)
	}
	if len(b.subscribers) != 1 {
		t.Errorf("%d subscribers are left, want 1", len(b.subscribers))
	}
}

func TestPublishAllocatesNothing(t *testing.T) {
	var b Bus
	b.Subscribe(1)
	now := time.Now()
	if n := testing.AllocsPerRun(100, func() { b.Publish(Event{Kind: XID, Time: now}) }); n != 0 {
		t.Errorf("%v allocations per event, want 0", n)
	}
}

// TestStates: a change is published once, for the GPU, and Since is of all devices.
func TestStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Bus
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
		check(t, "the start", texts(sub), []string{"collector x is up"})
		set(session.Lost)
		check(t, "a device that is lost", texts(sub), []string{"device is lost"})
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
		if _, ok := (*States)(nil).Since("x", "a", session.Up); ok {
			t.Error("nothing knows a state")
		}
	})
}

// TestStatesThatAreBad: an event is bad unless an operator has asked for the state. It names the GPU instead of its parts.
func TestStatesThatAreBad(t *testing.T) {
	var b Bus
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
		check(t, what, got, want)
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
