package exposition

import (
	"context"
	"time"

	"warpgauge/pkg/view"
)

// Bounds of how often Run syncs. A ring at the fastest tick, 10 ms, and the
// smallest size that the sampler makes is not lapped within the shortest.
const (
	firstSyncEvery = 100 * time.Millisecond
	minSyncEvery   = 10 * time.Millisecond
	maxSyncEvery   = time.Second
)

// Run reads the rows for what is accumulated while nobody scrapes, and builds a
// new layout when one is needed, so that the next scrape need not. It returns
// ctx's error when ctx is done. A Renderer works without it, but then rows are
// lost if scrapes are further apart than the rings are long.
func (r *Renderer) Run(ctx context.Context) error {
	pace := pace{every: firstSyncEvery}
	timer := time.NewTimer(pace.every)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		pace.adapt(r.board.Load())
		r.Sync(time.Now())
		timer.Reset(pace.every)
	}
}

// Sync reads all rows that are in the rings now, and builds a new layout if one
// is needed.
func (r *Renderer) Sync(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refresh(r.generation(r.board.Load()), now)
}

// pace finds how often to sync, from how much of a ring is written in between.
type pace struct {
	every time.Duration
	view  *view.View
	heads []uint64
}

// adapt keeps what is written between two syncs between a sixteenth and a
// quarter of the ring that fills up fastest.
func (p *pace) adapt(v *view.View) {
	if p.view != v {
		p.view, p.heads, p.every = v, make([]uint64, len(v.Sources)), min(p.every, firstSyncEvery)
		for i, s := range v.Sources {
			p.heads[i] = s.Ring.Head()
		}
		return
	}
	fullest := 0.0
	for i, s := range v.Sources {
		head := s.Ring.Head()
		fullest = max(fullest, float64(head-p.heads[i])/float64(s.Ring.Rows()))
		p.heads[i] = head
	}
	switch {
	case fullest > 1./4:
		p.every = max(p.every/2, minSyncEvery)
	case fullest < 1./16:
		p.every = min(p.every*2, maxSyncEvery)
	}
}
