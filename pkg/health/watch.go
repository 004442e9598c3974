package health

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// interval is how often devices are judged.
const interval = time.Second

// maxObservations is how many wait for the next time; of more, the newest are dropped and
// counted.
const maxObservations = 1024

// Options of New.
type Options struct {
	View   func() *view.View
	Status func() []session.CollectorStatus
	// Changed hears of each verdict that has another state or reason, and what it was
	// before: a zero Verdict for a new device. It must not block. nil: nothing does.
	Changed func(before, after *Verdict)
	// Directory is where conditions are kept; "": in memory only.
	Directory string
	Logger    *zap.Logger
}

// Watch judges devices. Run does the work; Observe can be called by any goroutine.
type Watch struct {
	o     Options
	log   *zap.Logger
	board Board

	mu       sync.Mutex
	observed []Observation // since the last time
	dropped  uint64
}

// New returns a Watch that does not run yet.
func New(o Options) *Watch {
	return &Watch{o: o, log: o.Logger.Named("health")}
}

// Board is where verdicts are published.
func (w *Watch) Board() *Board { return &w.board }

// Observe takes what a witness says. It does not wait for anything but other callers.
func (w *Watch) Observe(o Observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.observed) == maxObservations {
		w.dropped++
		return
	}
	w.observed = append(w.observed, o)
}

// Run judges once a second until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		w.judge(time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (w *Watch) judge(time.Time) {
	w.mu.Lock()
	w.observed = w.observed[:0]
	w.mu.Unlock()
}
