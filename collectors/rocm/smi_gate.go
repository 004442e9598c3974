package rocm

import (
	"context"
	"sync"
	"time"
)

// gate keeps calls out of the library while it is started anew: its devices and
// their locks are freed then, under the feet of any call.
// The zero gate is barred.
type gate struct {
	mu      sync.Mutex
	state   gateState
	inside  int
	changed chan struct{} // closed when the state or inside changes, if somebody waits
}

type gateState int

const (
	gateBarred gateState = iota // nothing to call
	gateOpen
	gateShut // about to be open again, or barred
)

// enter lets a call in, at once where the gate is open. Where it is shut it
// waits, but no longer than d. It reports whether the call is in; if so, leave.
func (g *gate) enter(d time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state == gateShut && d > 0 {
		g.waitOpenLocked(d)
	}
	if g.state != gateOpen {
		return false
	}
	g.inside++
	return true
}

// waitOpenLocked waits until the gate is not shut any more, but no longer than d.
func (g *gate) waitOpenLocked(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	for late := false; g.state == gateShut && !late; {
		changed := g.waitLocked()
		g.mu.Unlock()
		select {
		case <-changed:
		case <-t.C:
			late = true
		}
		g.mu.Lock()
	}
}

func (g *gate) leave() {
	g.mu.Lock()
	g.inside--
	if g.inside == 0 {
		g.tellLocked()
	}
	g.mu.Unlock()
}

// open lets calls in.
func (g *gate) open() { g.set(gateOpen) }

// bar sends calls away that wait for the gate to open.
func (g *gate) bar() { g.set(gateBarred) }

func (g *gate) set(s gateState) {
	g.mu.Lock()
	g.state = s
	g.tellLocked()
	g.mu.Unlock()
}

// shut keeps new calls out and waits until the last one has left. If ctx ends
// first it reports false, and the gate is as it was.
func (g *gate) shut(ctx context.Context) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.state
	g.state = gateShut
	for g.inside > 0 && ctx.Err() == nil {
		changed := g.waitLocked()
		g.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		g.mu.Lock()
	}
	if g.inside > 0 {
		g.state = was
		g.tellLocked()
		return false
	}
	return true
}

func (g *gate) waitLocked() <-chan struct{} {
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	return g.changed
}

func (g *gate) tellLocked() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}
