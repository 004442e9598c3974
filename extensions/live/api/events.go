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
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
)

const (
	maxEvents    = 1024 // per kind, so that frequent clock events do not displace XIDs
	maxPublished = 1024 // waiting on the bus
	maxReasons   = 1 << 16
	maxEventText = 1024
	clockPause   = 10 * time.Second // between two events of the same device and clock event reason
)

// Log keeps the newest events in memory. It is safe for concurrent use, and its methods block only
// on each other.
type Log struct {
	now func() time.Time
	bus *events.Subscription // nil without a bus

	mu     sync.Mutex
	number uint64 // number of the last event
	kept   []numbered
	kinds  map[string]int       // number of events by kind
	clocks map[string]time.Time // time of the last event by device and reason
}

// numbered is an event with its number. Numbers start at 1 and grow with each added event.
type numbered struct {
	apiv1.Event
	number uint64
}

// NewLog returns an empty Log.
func NewLog(now func() time.Time) *Log {
	return &Log{now: now, kinds: map[string]int{}, clocks: map[string]time.Time{}}
}

// Subscribe makes the Log receive events from a bus. Call it before Run.
func (l *Log) Subscribe(bus *events.Bus) {
	l.bus = bus.Subscribe(maxPublished, events.XID, events.KernelLog, events.Clock, events.DeviceState, events.CollectorState,
		events.Reload, events.Failover, events.Recording, events.Health)
}

// Run adds events from the bus until ctx ends.
func (l *Log) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-l.bus.C:
			l.addPublished(&e)
		}
	}
}

// receive adds the events waiting on the bus.
func (l *Log) receive() {
	for l.bus != nil {
		select {
		case e := <-l.bus.C:
			l.addPublished(&e)
		default:
			return
		}
	}
}

// addPublished adds an event from the bus.
func (l *Log) addPublished(e *events.Event) {
	var d collector.Device
	if e.Device != nil {
		d = *e.Device
	}
	switch e.Kind {
	case events.XID:
		l.addXID(&d, e)
	case events.Clock:
		l.addClockEvent(&d, e)
	default:
		l.add(apiv1.Event{Time: e.Time, Kind: string(e.Kind), Device: d.ID, GPU: d.GPU, Source: e.Source, Text: e.Text, Bad: e.Bad})
	}
}

// Add adds an event. If it has no time, Add sets the current time.
func (l *Log) Add(e apiv1.Event) {
	l.receive() // keep the order: add earlier events first
	l.add(e)
}

func (l *Log) add(e apiv1.Event) {
	if e.Time.IsZero() {
		e.Time = l.now()
	}
	e.Time = timeOf(e.Time)
	if len(e.Text) > maxEventText {
		e.Text = strings.ToValidUTF8(e.Text[:maxEventText], "")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number++
	if l.kinds[e.Kind]++; l.kinds[e.Kind] > maxEvents {
		dropped := 0
		l.kept = slices.DeleteFunc(l.kept, func(o numbered) bool {
			drop := o.Kind == e.Kind && dropped < maxEvents/8
			if drop {
				dropped++
			}
			return drop
		})
		l.kinds[e.Kind] -= dropped
	}
	l.kept = append(l.kept, numbered{e, l.number})
}

func (l *Log) addXID(d *collector.Device, x *events.Event) {
	code := x.Code
	e := apiv1.Event{Time: x.Time, Kind: string(x.Kind), Device: d.ID, GPU: d.GPU, Code: &code, Source: x.Source, Bad: true}
	if e.Text = fmt.Sprintf("XID %d: %s", code, field.XIDText(code)); code < 0 {
		e.Code, e.Text = nil, "an XID with an impossible code"
	}
	e.Text += x.Text
	l.add(e)
}

// addClockEvent adds the start of a clock event. It skips idle reasons, and repeats on the same
// device within clockPause.
func (l *Log) addClockEvent(d *collector.Device, e *events.Event) {
	if e.Reason == "gpu_idle" || !l.isRare(d.ID+"\x00"+e.Reason, e.Time) {
		return
	}
	l.add(apiv1.Event{
		Time: e.Time, Kind: string(e.Kind), Device: d.ID, GPU: d.GPU, Text: "clocks are reduced: " + e.Reason,
		Bad: strings.HasPrefix(e.Reason, "hw_"),
	})
}

// isRare records a clock event and reports whether the previous one is long enough ago.
func (l *Log) isRare(key string, at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, seen := l.clocks[key]; seen && at.Sub(last) < clockPause && !at.Before(last) {
		return false
	}
	if len(l.clocks) > maxReasons {
		clear(l.clocks)
	}
	l.clocks[key] = at
	return true
}

// Last returns the number of the newest event.
func (l *Log) Last() uint64 {
	l.receive()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.number
}

// after returns the events after a number, in order.
func (l *Log) after(number uint64) []numbered {
	l.receive()
	l.mu.Lock()
	defer l.mu.Unlock()
	from, _ := slices.BinarySearchFunc(l.kept, number+1, func(e numbered, n uint64) int { return int(int64(e.number) - int64(n)) })
	return slices.Clone(l.kept[from:])
}

// All returns all stored events, oldest first.
func (l *Log) All() (out []apiv1.Event) {
	for _, e := range l.after(0) {
		out = append(out, e.Event)
	}
	return out
}

// maxListed bounds the events of an answer.
const maxListed = 2000

// events returns the answer of /api/v1/events: the newest events, oldest first.
func (l *Log) events(q *query, now time.Time) (*apiv1.Events, error) {
	since, err := timeIn(q, "since", now, time.Time{})
	if err != nil {
		return nil, err
	}
	limit, err := countIn(q, "limit", maxListed, maxListed)
	if err != nil {
		return nil, err
	}
	out := &apiv1.Events{Events: slices.DeleteFunc(append([]apiv1.Event{}, l.All()...), func(e apiv1.Event) bool { return e.Time.Before(since) })}
	slices.SortStableFunc(out.Events, func(a, b apiv1.Event) int { return a.Time.Compare(b.Time) })
	out.Events = out.Events[max(0, len(out.Events)-limit):]
	return out, nil
}

// timeIn parses a parameter with a time, or a duration before now.
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

// countIn parses a parameter with a number from 1 to most.
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
