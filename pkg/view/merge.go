package view

import "sync"

// Merger makes one Board out of what several publishers have in service, such as
// a sampler in this process and the children that isolate others. The zero
// Merger is ready for use.
type Merger struct {
	board Board
	mu    sync.Mutex
	parts []*Part
}

// Part is the place of one publisher on the merged Board.
type Part struct {
	merger  *Merger
	sources []*Source // guarded by merger.mu
}

// Board is where readers find the sources of all parts. Nobody else may store on it.
func (m *Merger) Board() *Board { return &m.board }

// Part adds a place behind those there are: parts are made in order of priority.
func (m *Merger) Part() *Part {
	p := &Part{merger: m}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.parts = append(m.parts, p)
	return p
}

// Publish replaces what this part has in service; an empty View takes it away.
// The version of v is of no account: that of the merged View grows with every
// call, whichever part it comes from. v must not be changed afterwards. It waits
// for nothing but other calls, which copy pointers.
func (p *Part) Publish(v *View) {
	m := p.merger
	m.mu.Lock()
	defer m.mu.Unlock()
	p.sources = v.Sources
	merged := &View{Version: m.board.Load().Version + 1}
	for _, part := range m.parts {
		merged.Sources = append(merged.Sources, part.sources...)
	}
	m.board.Store(merged)
}
