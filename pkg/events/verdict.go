package events

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"warpgauge/pkg/collector"
)

// State of a device's health, the worst last. An unknown state counts as worse than ok.
type State uint8

// States.
const (
	OK       State = iota
	Unknown        // no values, or released
	Degraded       // answers, but something is wrong
	Failed         // what it computes is lost or wrong
)

func (s State) String() string { return [...]string{"ok", "unknown", "degraded", "failed"}[s] }

// Action is the recommended action for a person or a program. The texts are labels.
type Action string

// Actions.
const (
	ActionNone    Action = "none"
	ActionDrain   Action = "drain"     // give it no new work, then look
	ActionReset   Action = "reset_gpu" // when it is free
	ActionReboot  Action = "reboot"
	ActionReplace Action = "replace"
	ActionContact Action = "contact_vendor"
)

// OutOfService reports whether a device with that state and action must get no new work. Other actions on a device that has
// not failed are for the next opportunity.
func OutOfService(state string, a Action) bool { return state == Failed.String() || a == ActionDrain }

// Verdict is the verdict on one device's health.
type Verdict struct {
	Device    collector.Device
	Collector string // that knows it; "" if none does
	State     State
	Reason    string    // code of the worst condition, fit for a label: "xid_79", "row_remap_failed"; "" if ok
	Text      string    // the same in words
	Action    Action    // never empty
	Since     time.Time // last change of State or Reason
	// Conditions lists the present problems, the worst first. Conditions with the State OK are for information.
	Conditions []Condition
	// Unjudged lists the rules that cannot be evaluated, because the device lacks a reading.
	Unjudged []Unjudged
}

// OutOfService is OutOfService of the verdict.
func (v *Verdict) OutOfService() bool { return OutOfService(v.State.String(), v.Action) }

// Unjudged is a rule that cannot be evaluated, with the reason. Without it, a silent rule would look as if all is well.
type Unjudged struct {
	Rule string
	Why  collector.Reason
}

// Condition is one problem of a device: a rule that holds.
type Condition struct {
	Reason   string
	State    State
	Action   Action
	Text     string
	Since    time.Time
	Last     time.Time  // when it was last seen
	Evidence []Evidence // the newest last; bounded
}

// Evidence is one observation.
type Evidence struct {
	Time   time.Time
	Source string // its source: "nvml", "dcgm", "sysfs", "kernel log", "pci"
	Text   string
}

// Snapshot holds all verdicts at one time. It must not be changed.
type Snapshot struct {
	Version  uint64 // grows when a verdict or condition changes
	Time     time.Time
	Verdicts []Verdict // GPUs, instances and switches; not links and cores
}

// Board holds the current verdicts. The zero Board holds none. The health extension alone makes verdicts and
// publishes them; everything else reads the Board, which is empty without the extension. Any goroutine may use it.
type Board struct {
	p       atomic.Pointer[Snapshot]
	mu      sync.Mutex
	changed chan struct{} // closed by the next Store
}

// Load returns the current Snapshot, never nil.
func (b *Board) Load() *Snapshot {
	if s := b.p.Load(); s != nil {
		return s
	}
	return &Snapshot{}
}

// Store replaces the Snapshot. Calls must not overlap.
func (b *Board) Store(s *Snapshot) {
	b.p.Store(s)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

// After waits for a Snapshot with a version above the given one.
func (b *Board) After(ctx context.Context, version uint64) (*Snapshot, error) {
	for {
		b.mu.Lock()
		if b.changed == nil {
			b.changed = make(chan struct{})
		}
		changed := b.changed
		b.mu.Unlock()
		if s := b.Load(); s.Version > version {
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
