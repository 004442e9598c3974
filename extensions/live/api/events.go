package api

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
	"warpgauge/pkg/verdict"
)

// Kinds of events.
const (
	KindXID       = "xid"
	KindKernel    = "kernel_log"
	KindClock     = "clock_event"
	KindDevice    = "device_state"
	KindCollector = "collector_state"
	KindReload    = "reload"
	KindFailover  = "failover"
	KindRecording = "recording"
	KindHealth    = "health"
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
	states map[stateKey]stateSince
	clocks map[string]time.Time // by device and reason: the last event
}

// numbered is an event and its number, from 1 in the order in which they were added.
type numbered struct {
	apiv1.Event
	number uint64
}

// stateKey is a device of a collector, or without a device the collector.
type stateKey struct{ collector, device string }

// stateSince is a state and when it was first seen.
type stateSince struct {
	state string
	since time.Time
}

// NewLog returns an empty Log.
func NewLog(now func() time.Time) *Log {
	return &Log{now: now, kinds: map[string][]numbered{}, states: map[stateKey]stateSince{}, clocks: map[string]time.Time{}}
}

// Add adds an event. One without a time is of now.
func (l *Log) Add(e apiv1.Event) {
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

// XID adds an XID of a device, and what is known of it in addition. source is the witness that has
// reported it first.
func (l *Log) XID(d *collector.Device, code int, at time.Time, source, detail string) {
	e := apiv1.Event{Time: at, Kind: KindXID, Device: d.ID, GPU: d.GPU, Code: &code, Source: source, Bad: true}
	if e.Text = fmt.Sprintf("XID %d: %s", code, field.XIDText(code)); code < 0 {
		e.Code, e.Text = nil, "an XID with an impossible code"
	}
	e.Text += detail
	l.Add(e)
}

// ClockEvent adds the onset of a clock event, unless it is no more than an idle GPU, or the
// device had one of the same reason a short time ago.
func (l *Log) ClockEvent(d *collector.Device, reason string, at time.Time) {
	if reason == "gpu_idle" || !l.rare(d.ID+"\x00"+reason, at) {
		return
	}
	l.Add(apiv1.Event{
		Time: at, Kind: KindClock, Device: d.ID, GPU: d.GPU, Text: "clocks are reduced: " + reason,
		Bad: strings.HasPrefix(reason, "hw_"),
	})
}

// Health adds that the verdict on a device is another one.
func (l *Log) Health(v *verdict.Verdict) {
	e := apiv1.Event{Time: l.now(), Kind: KindHealth, Device: v.Device.ID, GPU: v.Device.GPU, Text: "health is " + v.State.String(), Bad: v.State >= verdict.Degraded}
	if v.State != verdict.OK {
		e.Text += ": " + v.Text + " (" + v.Reason + ")"
	}
	if v.Action != verdict.ActionNone {
		e.Text += "; action: " + string(v.Action)
	}
	l.Add(e)
}

// rare notes a clock event. It reports false if the last one was a short time ago.
func (l *Log) rare(key string, at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, seen := l.clocks[key]; seen && at.Sub(last) < clockPause && !at.Before(last) {
		return false
	}
	if len(l.clocks) > maxStates {
		clear(l.clocks)
	}
	l.clocks[key] = at
	return true
}

func (l *Log) addLocked(e apiv1.Event) {
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

// After returns the events that are kept behind a number, the oldest first, and the number
// of the last one. That of the first event is 1.
func (l *Log) After(number uint64) (events []apiv1.Event, last uint64) {
	last = number
	for _, e := range l.after(number) {
		events, last = append(events, e.Event), e.number
	}
	return events, last
}

// since returns when a device was first seen in a state, if it is in that one.
func (l *Log) since(collector, device string, state session.State) (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, seen := l.states[stateKey{collector, device}]
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
	before, seen := l.states[stateKey{c.Name, ""}]
	if seen && before.state == state {
		return
	}
	if !c.Up && c.Cause == session.CauseOpening && seen {
		return // between two sessions
	}
	l.states[stateKey{c.Name, ""}] = stateSince{state: state, since: now}
	if !seen && (c.Cause == session.CauseOpening || c.Cause.Quiet()) {
		return // at the start
	}
	e := apiv1.Event{Time: now, Kind: KindCollector, Text: fmt.Sprintf("collector %s is up", c.Name)}
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
	key, state := stateKey{collector, d.Device.ID}, d.State.String()
	before, seen := l.states[key]
	if seen && before.state == state {
		return
	}
	l.states[key] = stateSince{state: state, since: now}
	if d.Device.Parent != "" || !seen && d.State == session.Up {
		return // reported once, for the GPU
	}
	e := apiv1.Event{Time: now, Kind: KindDevice, Device: d.Device.ID, GPU: d.Device.GPU, Text: "device is " + state}
	if d.State != session.Up {
		e.Bad = d.State != session.Released
		if d.Reason != "" {
			e.Text += ": " + d.Reason
		}
	}
	l.addLocked(e)
}

// maxListed is how many events an answer has.
const maxListed = 2000

// events makes the answer of /api/v1/events: the newest ones, the oldest of them first.
func (l *Log) events(q *query, now time.Time) (*apiv1.Events, error) {
	since, err := timeIn(q, "since", now, time.Time{})
	if err != nil {
		return nil, err
	}
	limit, err := countIn(q, "limit", maxListed, maxListed)
	if err != nil {
		return nil, err
	}
	out := &apiv1.Events{Events: []apiv1.Event{}}
	for _, e := range l.after(0) {
		if !e.Time.Before(since) {
			out.Events = append(out.Events, e.Event)
		}
	}
	slices.SortStableFunc(out.Events, func(a, b apiv1.Event) int { return a.Time.Compare(b.Time) })
	out.Events = out.Events[max(0, len(out.Events)-limit):]
	return out, nil
}

// timeIn reads a parameter that is a time, or a duration before now.
func timeIn(q *query, name string, now, otherwise time.Time) (time.Time, error) {
	text, err := q.one(name)
	if text == "" || err != nil {
		return otherwise, err
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	if d, err := time.ParseDuration(strings.TrimPrefix(text, "-")); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil && ms >= 0 {
		return time.UnixMilli(ms), nil
	}
	return time.Time{}, badQuery("%s is %q: write a time such as 2026-11-22T17:00:00Z, milliseconds since 1970, or a duration before now such as 90s or 15m", name, text)
}

// countIn reads a parameter that is a number from 1 to most.
func countIn(q *query, name string, otherwise, most int) (int, error) {
	text, err := q.one(name)
	if text == "" || err != nil {
		return otherwise, err
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, badQuery("%s is %q: write a number from 1 to %d", name, text, most)
	}
	return n, nil
}
