//go:build linux && cgo

package dcgm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
)

// session is a connection to a host engine, or an embedded one. Two collectors
// share it while one takes over from the other at a reload.
type session struct {
	home   *registry
	lib    *library
	engine *engine
	far    bool // see address

	refs   int // guarded by the registry's turn
	broken atomic.Bool

	mu     sync.Mutex
	xids   map[uint32]*xidLog     // by GPU
	health map[healthKey][]uint32 // reasons that there were
}

// lose marks a session of which nothing works any more.
func (s *session) lose() {
	s.broken.Store(true)
	s.engine.gone.Store(true)
}

// xidLog is the log of a GPU's XIDs, shared by the collectors of the session.
func (s *session) xidLog(gpu uint32) *xidLog {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.xids == nil {
		s.xids = map[uint32]*xidLog{}
	}
	if s.xids[gpu] == nil {
		s.xids[gpu] = &xidLog{}
	}
	return s.xids[gpu]
}

// registry is DCGM of this process. There is one for all collectors, and it is
// package-level state, because what it guards is process-wide: libdcgm runs at
// most one embedded engine, and its threads do not survive that it is unloaded,
// so it is loaded once and stays.
type registry struct {
	turn    chan struct{} // holds a token while someone is inside; DCGM may hang in there
	lib     *library      // loaded and initialised, nil before the first success
	current *session      // nil when nobody has one that works
}

var process = &registry{turn: make(chan struct{}, 1)}

func (r *registry) enter(ctx context.Context) error {
	select {
	case r.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for an earlier call of DCGM: %w", ctx.Err())
	}
}

func (r *registry) leave() { <-r.turn }

// acquire connects, or joins the collector that is connected. The calls may
// hang; then acquire returns when ctx ends, and the call is left alone with the
// turn, so that no second one follows it.
func (r *registry) acquire(ctx context.Context, o Options) (*session, error) {
	if err := r.enter(ctx); err != nil {
		return nil, err
	}
	type result struct {
		s   *session
		err error
	}
	done := make(chan result, 1)
	go func() {
		defer r.leave()
		s, err := r.join(o)
		done <- result{s, err}
	}()
	select {
	case res := <-done:
		return res.s, res.err
	case <-ctx.Done():
		go func() { // whenever the call returns
			if res := <-done; res.err == nil {
				_ = r.release(res.s)
			}
		}()
		return nil, fmt.Errorf("wait for DCGM: %w", ctx.Err())
	}
}

func (r *registry) join(o Options) (*session, error) {
	if s := r.current; s != nil && !s.broken.Load() {
		s.refs++
		return s, nil
	}
	if r.current != nil && r.current.engine.embedded {
		return nil, fmt.Errorf("%w: the embedded host engine failed, and there can be only one in a process", collector.ErrOutdated)
	}
	r.current = nil // whoever holds it gives it back
	if r.lib == nil {
		lib, err := open(o)
		if err != nil {
			return nil, err
		}
		r.lib = lib
	}
	s, err := r.lib.start(o)
	if err != nil {
		return nil, err
	}
	s.home, s.refs = r, 1
	r.current = s
	return s, nil
}

// start connects to an engine, or starts one.
func (l *library) start(o Options) (*session, error) {
	s := &session{lib: l}
	var err error
	if o.Engine == "" {
		s.engine, err = l.embed(o.LogFile, severities[o.LogLevel])
	} else {
		var a address
		if a, err = parseAddress(o.Engine, l.has("dcgmConnect_v3")); err == nil {
			s.far = a.far
			s.engine, err = l.connect(a, o.ConnectTimeout)
		}
	}
	if err != nil {
		return nil, explain(o, err)
	}
	version, _ := s.engine.version()
	o.Log.Info("host engine answers", zap.String("file", l.path()), zap.String("source", o.engineName()), zap.String("version", shortVersion(version)))
	return s, nil
}

// hold keeps a session for a caller that has it from somebody else, until it is
// released.
func (r *registry) hold(ctx context.Context, s *session) error {
	if err := r.enter(ctx); err != nil {
		return err
	}
	defer r.leave()
	if s.refs == 0 {
		return errors.New("the connection is closed")
	}
	s.refs++
	return nil
}

// release gives back what acquire gave.
func (r *registry) release(s *session) error {
	_ = r.enter(context.Background()) // cannot fail
	defer r.leave()
	return r.part(s)
}

func (r *registry) part(s *session) error {
	if s.refs--; s.refs > 0 {
		return nil
	}
	if r.current == s {
		r.current = nil
	}
	err := s.engine.close()
	if severed(err) { // the other side is gone, and with it what there was to close
		return nil
	}
	if err != nil {
		return fmt.Errorf("close the connection to the host engine: %w", err)
	}
	return nil
}
