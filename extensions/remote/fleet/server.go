// Package fleet is a reference OpAMP server that brings field lists to many exporters: cohorts and lists
// come from a directory, a new list goes to a few agents first, and a rollout stops and returns
// when the agents' own numbers say that it does harm.
//
// One goroutine owns the state; everything else asks it. The decision who has which list is a pure
// function of that state. What must outlive the process is on the disk before an agent sees it.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/pkg/file"
)

// Options of a Server.
type Options struct {
	Directory      string        // with fleet.yaml and lists
	ReloadInterval time.Duration // between two readings of it
	State          file.Private  // directory of the state file
	MaxAgents      int
	Warmup         time.Duration // after a start, before stages begin and are judged
	ParseYAML      ParseYAML
	Registry       *prometheus.Registry // of /metrics
	Log            *zap.Logger
	Version        string
}

// Server serves agents and operators.
type Server struct {
	o      Options
	calls  chan func(*core)
	done   chan struct{} // closed when Run has ended
	totals totals
}

// Bounds of queues.
const (
	maxCalls   = 1024
	maxPushes  = 256 // lists on their way over WebSockets
	callWithin = 10 * time.Second
)

// New returns a Server. Run must be called.
func New(o Options) *Server {
	s := &Server{
		o: o, calls: make(chan func(*core), maxCalls), done: make(chan struct{}), totals: newTotals(o.Registry),
	}
	o.Registry.MustRegister(metrics{s})
	return s
}

// Run serves agents and operators until ctx ends or one of them fails.
func (s *Server) Run(ctx context.Context, agents, operators *Endpoint) error {
	srv, err := s.agents(agents.Login)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 3)
	var wg sync.WaitGroup
	start := func(run func() error) {
		wg.Go(func() { ended <- run(); cancel() })
	}
	start(func() error { return s.ownState(ctx) })
	start(func() error { return agents.serve(ctx, s.limit(agents.Listener), srv) })
	start(func() error { return operators.serve(ctx, operators.Listener, s.operators(operators.Login)) })
	wg.Wait()
	return errors.Join(<-ended, <-ended, <-ended)
}

// ownState owns the state until ctx ends.
func (s *Server) ownState(ctx context.Context) error {
	defer close(s.done)
	root, err := s.o.State.Open()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // the store has its own file
	st, state, err := openStore(root)
	if err != nil {
		return err
	}
	c := newCore(s.o, s.totals, st, state, time.Now())
	defer func() {
		c.hangUp()
		_ = c.store.close() // every line was synced
	}()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		Watch(ctx, s.o.ReloadInterval, func() (*Plan, error) { return ReadDirectory(s.o.Directory, s.o.ParseYAML) }, func(p *Plan, err error) {
			_ = s.do(ctx, func(c *core) { c.applyPlan(p, err, time.Now()) }) // it is read again
		})
	})
	var pushes atomic.Int64
	tick := time.NewTicker(min(time.Second, s.o.ReloadInterval))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case call := <-s.calls:
			call(c)
		case now := <-tick.C:
			c.tick(now)
			for _, p := range c.waiting(now, maxPushes-int(pushes.Load())) {
				pushes.Add(1)
				wg.Go(func() {
					defer pushes.Add(-1)
					// A connection that takes none is cut off by its write limit; its agent gets the list with its next message.
					if p.to.Send(ctx, p.message) != nil {
						_ = p.to.Disconnect() // it is broken
					}
				})
			}
		}
	}
}

// do lets the owner of the state call f and waits until it has.
func (s *Server) do(ctx context.Context, f func(*core)) error {
	_, err := ask(ctx, s, func(c *core) struct{} { f(c); return struct{}{} })
	return err
}

// ask returns what f makes of the state.
func ask[T any](ctx context.Context, s *Server, f func(*core) T) (out T, err error) {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	answers := make(chan T, 1) // not a variable: the owner may answer when this one waits no longer
	calls := s.calls
	for {
		select {
		case calls <- func(c *core) { answers <- f(c) }:
			calls = nil
		case out = <-answers:
			return out, nil
		case <-ctx.Done():
			return out, errBusy
		case <-s.done:
			return out, errBusy
		}
	}
}

// Endpoint is where agents or operators connect.
type Endpoint struct {
	Listener net.Listener
	Login    *Login
	Serve    func(net.Listener, *http.Server) error // with TLS, where wanted
}

// serve serves until ctx ends.
func (e *Endpoint) serve(ctx context.Context, l net.Listener, srv *http.Server) error {
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if srv.Shutdown(limited) != nil {
			_ = srv.Close() // it closes connections whatever it answers
		}
	})
	err := e.Serve(l, srv)
	if !stop() {
		<-stopped
	}
	if err == nil || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve on %s: %w", l.Addr(), err)
}
