package api

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"warpgauge/extensions/live/apiv1"
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

// Log keeps the newest events in memory. It is safe for concurrent use, and its methods block only on each other.
type Log struct {
	People bool // keep events that name pods and jobs

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
func NewLog() *Log { return &Log{kinds: map[string]int{}, clocks: map[string]time.Time{}} }

// Subscribe makes the Log receive events from a bus. Call it before Run.
func (l *Log) Subscribe(bus *events.Bus) { l.bus = bus.Subscribe(maxPublished) }

// Run adds events from the bus until ctx ends.
func (l *Log) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-l.bus.C:
			l.Add(&e)
		}
	}
}

// receive adds the events waiting on the bus.
func (l *Log) receive() {
	for l.bus != nil {
		select {
		case e := <-l.bus.C:
			l.Add(&e)
		default:
			return
		}
	}
}

// Add adds an event. It skips clock events that say idle, and those that come within clockPause of the same one.
func (l *Log) Add(e *events.Event) {
	if e.Kind == events.Idle && !l.People {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	out := apiv1.Event{Time: timeOf(e.Time), Kind: string(e.Kind), Source: e.Source, Text: e.Text, Bad: e.Bad}
	if e.Device != nil {
		out.Device, out.GPU = e.Device.ID, e.Device.GPU
	}
	switch e.Kind {
	case events.XID:
		text := "an XID with an impossible code"
		if code := e.Code; code >= 0 {
			text, out.Code = fmt.Sprintf("XID %d: %s", code, field.XIDText(code)), &code
		}
		out.Text, out.Bad = text+e.Text, true
	case events.Clock:
		key := out.Device + "\x00" + e.Reason
		since := e.Time.Sub(l.clocks[key])
		if e.Reason == "gpu_idle" || since >= 0 && since < clockPause {
			return
		}
		if len(l.clocks) > maxReasons {
			clear(l.clocks)
		}
		l.clocks[key] = e.Time
		out.Source, out.Text, out.Bad = "", "clocks are reduced: "+e.Reason, strings.HasPrefix(e.Reason, "hw_")
	}
	if len(out.Text) > maxEventText {
		out.Text = strings.ToValidUTF8(out.Text[:maxEventText], "")
	}
	if l.kinds[out.Kind]++; l.kinds[out.Kind] > maxEvents {
		oldest := slices.IndexFunc(l.kept, func(o numbered) bool { return o.Kind == out.Kind })
		l.kept = slices.Delete(l.kept, oldest, oldest+1)
		l.kinds[out.Kind]--
	}
	l.number++
	l.kept = append(l.kept, numbered{out, l.number})
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
	from, _ := slices.BinarySearchFunc(l.kept, number+1, func(e numbered, n uint64) int { return cmp.Compare(e.number, n) })
	return slices.Clone(l.kept[from:])
}

// All returns all stored events, oldest first.
func (l *Log) All() []apiv1.Event {
	out := []apiv1.Event{}
	for _, e := range l.after(0) {
		out = append(out, e.Event)
	}
	return out
}

// maxListed bounds the events of an answer.
const maxListed = 2000

// events returns the answer of /api/v1/events: the newest events, oldest first.
func (l *Log) events(q *query, now time.Time) (*apiv1.Events, error) {
	since, errSince := timeIn(q, "since", now, time.Time{})
	limit, errLimit := countIn(q, "limit", maxListed, maxListed)
	if err := cmp.Or(errSince, errLimit); err != nil {
		return nil, err
	}
	found := slices.DeleteFunc(l.All(), func(e apiv1.Event) bool { return e.Time.Before(since) })
	slices.SortStableFunc(found, func(a, b apiv1.Event) int { return a.Time.Compare(b.Time) })
	return &apiv1.Events{Events: found[max(0, len(found)-limit):]}, nil
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
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
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
