package view

import "sync"

// Merger merges the sources of several supervisors into one Board. The zero Merger is ready for use.
type Merger struct {
	board Board
	mu    sync.Mutex
	parts []*Part
}

// Part is one publisher's share of the merged Board.
type Part struct {
	merger  *Merger
	sources []*Source // guarded by merger.mu
}

// Board returns the merged Board. Only the parts store on it.
func (m *Merger) Board() *Board { return &m.board }

// Part adds a part after the existing ones; the order is the order of priority.
func (m *Merger) Part() *Part {
	p := &Part{merger: m}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.parts = append(m.parts, p)
	return p
}

// Publish replaces the sources of this part; nil removes them. The caller must not change sources afterwards.
// Publish waits only for other Publish calls, which copy pointers.
func (p *Part) Publish(sources []*Source) {
	m := p.merger
	m.mu.Lock()
	defer m.mu.Unlock()
	p.sources = sources
	merged := &View{Version: m.board.Load().Version + 1}
	for _, part := range m.parts {
		merged.Sources = append(merged.Sources, part.sources...)
	}
	m.board.Store(merged)
}
