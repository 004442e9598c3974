// Package verdict holds the verdict on each device's health: ok, degraded, failed or unknown, with the
// reason, its beginning, the evidence, and the recommended action. One part of the program, the health
// extension, makes verdicts and publishes them on a Board; everything else reads that Board, which is
// empty where no verdicts are made. A Board can be used by any goroutine.
package verdict

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
	Unknown        // nothing can be said: no values, or released
	Degraded       // works, and something is wrong
	Failed         // must not be given work
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

// Verdict is the verdict on one device's health.
type Verdict struct {
	Device    collector.Device
	Collector string // that knows it; "" if none does
	State     State
	Reason    string    // code of the worst condition, fit for a label: "xid_79", "row_remap_failed"; "" if ok
	Text      string    // the same in words
	Action    Action    // never empty
	Since     time.Time // when State or Reason changed last
	// Conditions are the present problems, the worst first. Conditions with the State OK are for
	// information.
	Conditions []Condition
	// Unjudged lists the rules that cannot be evaluated, because the device lacks a reading.
	Unjudged []Unjudged
}

// Unjudged is a rule that cannot be judged, and why: a rule that is silent does not say that
// all is well.
type Unjudged struct {
	Rule string
	Why  collector.Reason
}

// Condition is one thing that is wrong with a device: a rule that holds.
type Condition struct {
	Reason   string
	State    State
	Action   Action
	Text     string
	Since    time.Time
	Last     time.Time  // when it was seen last
	Evidence []Evidence // the newest last; bounded
}

// Evidence is one thing that was seen.
type Evidence struct {
	Time   time.Time
	Source string // the witness: "nvml", "dcgm", "sysfs", "kernel log", "pci"
	Text   string
}

// Snapshot is all verdicts at one time. It must not be changed.
type Snapshot struct {
	Version  uint64 // grows when a verdict or condition changes
	Time     time.Time
	Verdicts []Verdict // GPUs, instances, switches: not links and cores
}

// Board holds the current Snapshot. The zero Board holds an empty one.
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

// Store replaces the Snapshot. One call at a time.
func (b *Board) Store(s *Snapshot) {
	b.p.Store(s)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

// After waits for a Snapshot of a version above the given one.
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
