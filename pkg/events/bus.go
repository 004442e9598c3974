// Package events is the bus for events of devices, collectors and field lists: XIDs and clock events of rows,
// states, takeovers, reloads. The part that sees an event publishes it; the parts that show, evaluate or
// record events subscribe. Board has the verdict on each device's health: ok, degraded, failed or unknown, with the
// reason, its beginning, the evidence, and the recommended action.
//
// Publish never waits: each subscriber has a bounded queue, and the newest events are dropped and counted
// when it is full, because the first event of a fault names its cause.
package events

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"warpgauge/pkg/collector"
)

// Kind names the kind of an event.
type Kind string

// Kinds of events.
const (
	XID            Kind = "xid"
	KernelLog      Kind = "kernel_log"
	Clock          Kind = "clock_event"
	DeviceState    Kind = "device_state"
	CollectorState Kind = "collector_state"
	Reload         Kind = "reload"
	Failover       Kind = "failover"
	Recording      Kind = "recording"
	Health         Kind = "health"
	Idle           Kind = "idle" // an owner holds a GPU without use
)

// Event is one event. It is immutable.
type Event struct {
	Kind   Kind
	Time   time.Time         // zero: now
	Device *collector.Device // nil: not about a device
	Source string            // who reports it: a collector, the kernel log
	Code   int               // XID code; below 0: the code makes no sense
	Reason string            // clock event, as in the label clock_event
	Text   string            // in words; for an XID, details in addition to its code
	Bad    bool              // someone should look at it
	// Evidence quotes the source, such as a line of the kernel's log.
	Evidence string
}

// Gate decides which events are published: one, if two sources report the same event.
type Gate interface {
	Admit(e Event) bool
}

// Bus hands events to subscribers. Any goroutine may call its methods. The zero Bus is ready
// for use; a nil *Bus drops all events.
type Bus struct {
	// Gate, if not nil, decides about each event. Set it before the first one.
	Gate Gate

	mu          sync.RWMutex
	subscribers []*Subscription
}

// Subscription is one subscriber's queue.
type Subscription struct {
	C       <-chan Event // closed by Close
	c       chan Event
	bus     *Bus
	kinds   []Kind
	dropped atomic.Uint64
}

// Subscribe returns a queue for up to size events of the given kinds, or of all kinds without one.
func (b *Bus) Subscribe(size int, kinds ...Kind) *Subscription {
	c := make(chan Event, size)
	s := &Subscription{C: c, c: c, bus: b, kinds: kinds}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.subscribers = append(b.subscribers, s)
	return s
}

// Publish hands an event to all subscribers and never waits.
func (b *Bus) Publish(e Event) {
	if b == nil {
		return
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	if b.Gate != nil && !b.Gate.Admit(e) {
		return
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, s := range b.subscribers {
		if len(s.kinds) > 0 && !slices.Contains(s.kinds, e.Kind) {
			continue
		}
		select {
		case s.c <- e:
		default:
			s.dropped.Add(1)
		}
	}
}

// Dropped returns how many events found the queue full.
func (s *Subscription) Dropped() uint64 { return s.dropped.Load() }

// Close ends the subscription. The subscriber can still receive the queued events.
func (s *Subscription) Close() {
	b := s.bus
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.subscribers, s); i >= 0 {
		b.subscribers = slices.Delete(b.subscribers, i, i+1)
		close(s.c) // from now on no Publish sends on it
	}
}
