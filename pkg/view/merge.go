package view

import "sync"

// Merger makes one Board out of what several supervisors have in service. The zero
// Merger is ready for use.
type Merger struct {
	board Board
	mu    sync.Mutex
	parts []*Part
}

// Part is what one publisher has on the merged Board.
type Part struct {
	merger  *Merger
	sources []*Source // guarded by merger.mu
}

// Board is the merged one. Only the parts store on it.
func (m *Merger) Board() *Board { return &m.board }

// Part adds a part behind those there are: parts are made in order of priority.
func (m *Merger) Part() *Part {
	p := &Part{merger: m}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.parts = append(m.parts, p)
	return p
}

// Publish replaces the sources of this part; none takes it away. sources must not
// be changed afterwards. It waits for nothing but other calls, which copy pointers.
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
