package api

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"warpgauge/pkg/session"
)

// Kinds of events.
const (
	KindXID       = "xid"
	KindClock     = "clock_event"
	KindDevice    = "device_state"
	KindCollector = "collector_state"
	KindReload    = "reload"
	KindFailover  = "failover"
	KindRecording = "recording"
)

const (
	maxEvents     = 1024 // of each kind: a clock that flaps does not push XIDs out
	maxStates     = 1 << 16
	maxEventText  = 1024
	clockPause    = 10 * time.Second // between two events of one device and clock event reason
	watchInterval = time.Second
)

// Log keeps the newest events in memory, and since when devices are in their states. Its
// methods can be called by any goroutine; they wait for nothing but each other.
type Log struct {
	now func() time.Time

	mu     sync.Mutex
	number uint64 // of the last event
	kinds  map[string][]numbered
	states map[string]stateSince // by collector and device; the collector itself has no device
	clocks map[string]time.Time  // by device and reason: the last event
}

// numbered is an event and its number, from 1 in the order in which they were added.
type numbered struct {
	Event
	number uint64
}

// stateSince is a state and when it was first seen.
type stateSince struct {
	state string
	since time.Time
}

// NewLog returns an empty Log.
func NewLog(now func() time.Time) *Log {
	return &Log{now: now, kinds: map[string][]numbered{}, states: map[string]stateSince{}, clocks: map[string]time.Time{}}
}

// Add adds an event. One without a time is of now.
func (l *Log) Add(e Event) {
	if e.Time.IsZero() {
		e.Time = l.now()
	}
	e.Time = timeOf(e.Time)
	if len(e.Text) > maxEventText {
		e.Text = strings.ToValidUTF8(e.Text[:maxEventText], "")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addLocked(e)
}

func (l *Log) addLocked(e Event) {
	l.number++
	of := l.kinds[e.Kind]
	if len(of) == maxEvents {
		of = slices.Delete(of, 0, maxEvents/8)
	}
	l.kinds[e.Kind] = append(of, numbered{e, l.number})
}

// Last is the number of the newest event.
func (l *Log) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.number
}

// after returns the events behind a number, in the order of their numbers.
func (l *Log) after(number uint64) (out []numbered) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.number == number {
		return nil
	}
	for _, of := range l.kinds {
		from, _ := slices.BinarySearchFunc(of, number+1, func(e numbered, n uint64) int { return int(int64(e.number) - int64(n)) })
		out = append(out, of[from:]...)
	}
	slices.SortFunc(out, func(a, b numbered) int { return int(int64(a.number) - int64(b.number)) })
	return out
}

// since returns when a device was first seen in a state, if it is in that one.
func (l *Log) since(collector, device string, state session.State) (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, seen := l.states[collector+"\x00"+device]
	return s.since, seen && s.state == state.String()
}

// Watch adds an event whenever the state of a device or a collector has changed, until ctx
// ends. It reads memory once a second.
func (l *Log) Watch(ctx context.Context, status func() []session.CollectorStatus) error {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		l.note(status())
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// note compares all states with those that were seen last.
func (l *Log) note(all []session.CollectorStatus) {
	now := timeOf(l.now())
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.states) > maxStates {
		clear(l.states) // of a library that gives its devices other ids each time
	}
	for i := range all {
		c := &all[i]
		l.noteCollector(c, now)
		for j := range c.Devices {
			l.noteDevice(c.Name, &c.Devices[j], now)
		}
	}
}

func (l *Log) noteCollector(c *session.CollectorStatus, now time.Time) {
	state := "up"
	if !c.Up {
		state = string(c.Cause)
	}
	before, seen := l.states[c.Name]
	if seen && before.state == state {
		return
	}
	if !c.Up && c.Cause == session.CauseOpening && seen {
		return // between two sessions
	}
	l.states[c.Name] = stateSince{state: state, since: now}
	if !seen && (c.Cause == session.CauseOpening || c.Cause.Quiet()) {
		return // at the start
	}
	e := Event{Time: now, Kind: KindCollector, Text: fmt.Sprintf("collector %s is up", c.Name)}
	if !c.Up {
		e.Text = fmt.Sprintf("collector %s is not up: %s", c.Name, c.Reason)
		e.Bad = !c.Cause.Quiet() && c.Cause != session.CauseReleased && c.Cause != session.CauseStandby
	}
	l.addLocked(e)
}

func (l *Log) noteDevice(collector string, d *session.DeviceStatus, now time.Time) {
	if d.Cause == session.CauseStarting {
		return
	}
	key, state := collector+"\x00"+d.Device.ID, d.State.String()
	before, seen := l.states[key]
	if seen && before.state == state {
		return
	}
	l.states[key] = stateSince{state: state, since: now}
	if d.Device.Parent != "" || !seen && d.State == session.Up {
		return // reported once, for the GPU
	}
	e := Event{Time: now, Kind: KindDevice, Device: d.Device.ID, GPU: d.Device.GPU, Text: "device is " + state}
	if d.State != session.Up {
		e.Bad = d.State != session.Released
		if d.Reason != "" {
			e.Text += ": " + d.Reason
		}
	}
	l.addLocked(e)
}
