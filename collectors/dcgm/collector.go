//go:build linux && cgo

package dcgm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Collector is DCGM.
type Collector struct {
	o Options

	mu      sync.Mutex
	session *session
	sources []*source
	fields  field.List
	layout  layout // of the engine before it was bound

	looking atomic.Bool // a rescan is under way
}

var _ collector.Collector = (*Collector)(nil)

// New returns an unopened collector and touches nothing.
func New(o Options) *Collector { return &Collector{o: o.withDefaults()} }

// Name is "dcgm".
func (*Collector) Name() string { return "dcgm" }

// Open connects to the engine, finds what it has and watches what the list asks
// for. It does not wait for values. An error says what was tried and what to do,
// and leaves nothing open.
func (c *Collector) Open(ctx context.Context, fields field.List) ([]collector.Source, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s, err := process.acquire(ctx, c.o)
	if err != nil {
		return nil, fmt.Errorf("open DCGM: %w", err)
	}
	type result struct {
		layout  layout
		sources []*source
		err     error
	}
	done := make(chan result, 1)
	go func() { // its calls may hang as the engine does
		var r result
		if r.layout, r.err = lay(s.engine, fields, c.o); r.err == nil { // first: what changes meanwhile is seen by the next rescan
			r.sources, r.err = bind(s, fields, c.o)
		}
		done <- r
	}()
	select {
	case r := <-done:
		if r.err != nil {
			if severed(r.err) {
				s.lose()
			}
			return nil, fmt.Errorf("open DCGM: %w", errors.Join(r.err, s.home.release(s)))
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.session, c.sources, c.fields, c.layout = s, r.sources, fields, r.layout
		out := make([]collector.Source, len(r.sources))
		for i, src := range r.sources {
			out[i] = src
		}
		return out, nil
	case <-ctx.Done():
		go func() { // whenever the calls return
			r := <-done
			for _, src := range r.sources {
				src.close()
			}
			_ = s.home.release(s)
		}()
		return nil, fmt.Errorf("open DCGM: the host engine does not answer: %w", ctx.Err())
	}
}

// bind makes the sources: one of the GPUs and what is theirs, one of everything
// else, so that GPUs can change hands without taking switches and CPUs along.
func bind(s *session, fields field.List, o Options) (out []*source, err error) {
	defer func() {
		if err != nil {
			for _, src := range out {
				src.close()
			}
			out = nil
		}
	}()
	nodes, err := discover(s.engine, fields, o)
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		parts, err := partsOf(s, n, fields.Readings(), o)
		if err != nil {
			return out, err
		}
		out = append(out, newSource(s, n.devices, parts...))
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: the host engine %s has no GPU, switch or CPU", collector.ErrNoDevices, o.engineName())
	}
	return out, nil
}

// partsOf makes the parts of a source, or leaves nothing behind.
func partsOf(s *session, n *node, list []field.Reading, o Options) (out []part, err error) {
	defer func() {
		if err != nil {
			for _, p := range out {
				p.close()
			}
			out = nil
		}
	}()
	r, err := newReadings(s.engine, s.far, n, offered(s.engine, n, list, o.Log), o)
	if err != nil {
		return nil, err
	}
	out = append(out, r)
	x, err := newXIDs(s, n, list, o)
	if err != nil {
		return out, err
	}
	if x != nil {
		out = append(out, x)
	}
	h, err := newHealth(s, n, list, o)
	if err != nil {
		return out, err
	}
	if h != nil {
		out = append(out, h)
	}
	if p := newPeers(s, n, list, o); p != nil {
		out = append(out, p)
	}
	return out, nil
}

// Close takes the watches back and lets the connection go.
func (c *Collector) Close() error {
	c.mu.Lock()
	s, sources := c.session, c.sources
	c.session, c.sources = nil, nil
	c.mu.Unlock()
	if s == nil {
		return nil
	}
	for _, src := range sources {
		src.close()
	}
	return s.home.release(s)
}
