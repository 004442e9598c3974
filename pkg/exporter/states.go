package exporter

import (
	"context"
	"fmt"
	"sync"
	"time"

	"warpgauge/pkg/events"
	"warpgauge/pkg/session"
)

const (
	maxStates      = 1 << 16
	statesInterval = time.Second
)

// States publishes changes of device and collector states, and records when each state began. Any goroutine
// may call its methods.
type States struct {
	bus *events.Bus
	now func() time.Time

	mu     sync.Mutex
	states map[stateKey]stateSince
}

// stateKey is a device of a collector, or a collector.
type stateKey struct{ collector, device string }

// stateSince is a state and when it was first seen.
type stateSince struct {
	state string
	since time.Time
}

// NewStates returns States that know nothing yet. now is time.Now, or the clock of a test.
func NewStates(bus *events.Bus, now func() time.Time) *States {
	return &States{bus: bus, now: now, states: map[stateKey]stateSince{}}
}

// Run compares states once a second until ctx ends. It reads memory only.
func (s *States) Run(ctx context.Context, status func() []session.CollectorStatus) error {
	tick := time.NewTicker(statesInterval)
	defer tick.Stop()
	for {
		s.Update(status())
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Since returns when a device was first seen in a state, if it is still in that state.
func (s *States) Since(collector, device string, state session.State) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, seen := s.states[stateKey{collector, device}]
	return known.since, seen && known.state == state.String()
}

// Update compares all states with the previous ones.
func (s *States) Update(all []session.CollectorStatus) {
	now := s.now().UTC().Truncate(time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.states) > maxStates {
		clear(s.states) // of a library that changes its devices' ids each time
	}
	for i := range all {
		c := &all[i]
		s.updateCollector(c, now)
		for j := range c.Devices {
			s.updateDevice(c.Name, &c.Devices[j], now)
		}
	}
}

func (s *States) updateCollector(c *session.CollectorStatus, now time.Time) {
	state := "up"
	if !c.Up {
		state = string(c.Cause)
	}
	before, seen := s.states[stateKey{c.Name, ""}]
	if seen && before.state == state {
		return
	}
	if !c.Up && c.Cause == session.CauseOpening && seen {
		return // between two sessions
	}
	s.states[stateKey{c.Name, ""}] = stateSince{state: state, since: now}
	if !seen && (c.Cause == session.CauseOpening || c.Cause.Quiet()) {
		return // at the start
	}
	e := events.Event{Time: now, Kind: events.CollectorState, Text: fmt.Sprintf("collector %s is up", c.Name)}
	if !c.Up {
		e.Text = fmt.Sprintf("collector %s is not up: %s", c.Name, c.Reason)
		e.Bad = !c.Cause.Quiet() && c.Cause != session.CauseReleased && c.Cause != session.CauseStandby
	}
	s.bus.Publish(e)
}

func (s *States) updateDevice(collector string, d *session.DeviceStatus, now time.Time) {
	if d.Cause == session.CauseStarting {
		return
	}
	key, state := stateKey{collector, d.Device.ID}, d.State.String()
	before, seen := s.states[key]
	if seen && before.state == state {
		return
	}
	s.states[key] = stateSince{state: state, since: now}
	if d.Device.Parent != "" || !seen && d.State == session.Up {
		return // reported once, for the GPU
	}
	device := d.Device
	e := events.Event{Time: now, Kind: events.DeviceState, Device: &device, Text: "device is " + state}
	if d.State != session.Up {
		e.Bad = d.State != session.Released
		if d.Reason != "" {
			e.Text += ": " + d.Reason
		}
	}
	s.bus.Publish(e)
}
