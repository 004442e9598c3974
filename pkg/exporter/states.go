package exporter

import (
	"context"
	"fmt"
	"sync"
	"time"

	"warpgauge/pkg/events"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
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

	mu                  sync.Mutex
	collectors, devices map[string]stateSince
}

// stateSince is a state and when it was first seen.
type stateSince struct {
	state string
	since time.Time
}

// NewStates returns States that know nothing yet. now is time.Now, or the clock of a test.
func NewStates(bus *events.Bus, now func() time.Time) *States {
	return &States{bus: bus, now: now, collectors: map[string]stateSince{}, devices: map[string]stateSince{}}
}

// Run compares states once a second until ctx ends. It reads memory only.
func (s *States) Run(ctx context.Context, board *view.Board, status func() []session.CollectorStatus) error {
	return view.Every(ctx, statesInterval, func(time.Time) { s.Update(board.Load(), status()) })
}

// Since returns when a device was first seen in a state, if it is still in that state.
func (s *States) Since(device string, state session.State) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, seen := s.devices[device]
	return known.since, seen && known.state == state.String()
}

// Update compares all states with the previous ones. A device has the state from the collector whose values v shows.
func (s *States) Update(v *view.View, all []session.CollectorStatus) {
	now := s.now().UTC().Truncate(time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.devices) > maxStates {
		clear(s.devices) // of a library that changes its devices' ids each time
	}
	for i := range all {
		s.updateCollector(&all[i], now)
	}
	for _, d := range session.Devices(v, all) {
		s.updateDevice(d.DeviceStatus, now)
	}
}

func (s *States) updateCollector(c *session.CollectorStatus, now time.Time) {
	state := "up"
	if !c.Up {
		state = string(c.Cause)
	}
	before, seen := s.collectors[c.Name]
	if seen && before.state == state {
		return
	}
	if !c.Up && c.Cause == session.CauseOpening && seen {
		return // between two sessions
	}
	s.collectors[c.Name] = stateSince{state: state, since: now}
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

func (s *States) updateDevice(d *session.DeviceStatus, now time.Time) {
	if d.Cause == session.CauseStarting {
		return
	}
	state := d.State.String()
	before, seen := s.devices[d.Device.ID]
	if seen && before.state == state {
		return
	}
	s.devices[d.Device.ID] = stateSince{state: state, since: now}
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
