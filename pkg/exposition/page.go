package exposition

import (
	"sync"
	"sync/atomic"

	"warpgauge/pkg/view"
)

// generation says what a page was made from. Two equal generations give equal
// pages, until a device becomes stale.
type generation struct {
	view   *view.View
	rows   uint64 // sum of the heads of all rings; each only grows
	store  uint64
	owners uint64
	shares *Shares
	self   uint64
}

// Page is a rendered page, shared by all who asked for it while it was new.
type Page struct {
	// Written by the renderer while refs is 0 and nobody else can see them,
	// constant while it is not.
	data       []byte
	generation generation
	expires    int64 // Unix ns: the first device on it becomes stale

	refs atomic.Int64
	slot *slot // for good: a page always is of the same format and compression
}

// Bytes returns the page. It must not be changed, nor read after Release.
func (p *Page) Bytes() []byte { return p.data }

// Release gives the page back. Each Page returned by Renderer.Page must be
// released exactly once, by whichever goroutine. It does not wait for anything.
// It panics where it can tell that a page was released twice.
func (p *Page) Release() {
	switch n := p.refs.Add(-1); {
	case n > 0:
	case n < 0 || p.slot.current.Load() == p: // the slot's own reference is gone, too
		panic("exposition: page released more often than it was taken")
	default:
		p.slot.keep(p)
	}
}

// take adds a reference unless there is none. A count that fell to 0 never
// rises by it, so a page whose data is being rewritten cannot be taken.
func (p *Page) take() bool {
	for {
		n := p.refs.Load()
		if n <= 0 {
			return false
		}
		if p.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// maxSpare is how many unused pages a slot keeps: one to render into while the
// current one is read, one for a reader that was slow. What slower readers give
// back is left to the garbage collector.
const maxSpare = 2

// slot holds the newest page of one format and compression. The page holds a
// reference of the slot while it is current:
//
//	renderer: data… | refs = 2 | current = new        | old.refs − 1
//	reader:   p = current | refs of p not 0: + 1, else again | compare generation
//
// A reader that loaded p before it was replaced either gets its reference in
// time, so that p is not reused before it is released, or finds 0 and loads
// again. If p was reused meanwhile, it is a newer page of the same slot.
type slot struct {
	current atomic.Pointer[Page]

	mu    sync.Mutex // guards spare; held for a few instructions
	spare []*Page
}

// get returns the newest page with a reference for the caller, nil if none yet.
func (s *slot) get() *Page {
	for {
		p := s.current.Load()
		if p == nil || p.take() {
			return p
		}
	}
}

// fresh returns the newest page if it is of generation g and no device on it
// has become stale by now (Unix ns), else nil.
func (s *slot) fresh(g generation, now int64) *Page {
	p := s.get()
	if p == nil {
		return nil
	}
	if p.generation == g && now < p.expires {
		return p
	}
	p.Release()
	return nil
}

// blank returns a page to render into. Only the renderer calls it, under the lock
// under which it publishes, so the current page cannot be replaced meanwhile.
func (s *slot) blank() *Page {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.spare); n > 0 {
		p := s.spare[n-1]
		s.spare = s.spare[:n-1]
		return p
	}
	p := &Page{slot: s}
	if now := s.current.Load(); now != nil {
		p.data = make([]byte, 0, cap(now.data))
	}
	return p
}

func (s *slot) keep(p *Page) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.spare) < maxSpare {
		s.spare = append(s.spare, p)
	}
}

// publish makes p, which nobody else has seen, the newest page. The caller gets
// a reference to it, too.
func (s *slot) publish(p *Page) {
	p.refs.Store(2)
	if old := s.current.Swap(p); old != nil {
		old.Release()
	}
}
