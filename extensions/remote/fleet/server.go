// Package fleet is a reference OpAMP server that distributes field lists to many exporters. A directory defines cohorts and
// lists. A new list goes to a few agents first; the rollout stops and rolls back when the agents' own numbers show harm.
//
// One lock guards the state. A pure function of the state decides which agent gets which list. The server saves every change to
// disk before an agent sees it.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/pkg/file"
)

// Options of a Server.
type Options struct {
	Directory      string        // with fleet.yaml and lists
	ReloadInterval time.Duration // between two readings of Directory
	State          file.Private  // directory of the state file
	MaxAgents      int
	Warmup         time.Duration // after a start; stages neither begin nor fail during it
	ParseYAML      ParseYAML
	Registry       *prometheus.Registry // of /metrics
	Log            *zap.Logger
	Version        string
}

// Server serves agents and operators.
type Server struct {
	o      Options
	totals totals

	mu   sync.Mutex
	core *core // nil before Run
}

// New returns a Server. Run must be called.
func New(o Options) *Server {
	s := &Server{o: o, totals: newTotals(o.Registry)}
	o.Registry.MustRegister(metrics{s})
	return s
}

// Run serves agents and operators until ctx ends or one of them fails.
func (s *Server) Run(ctx context.Context, agents, operators *Endpoint) error {
	st, state, err := openStore(s.o.State)
	if err != nil {
		return errors.Join(err, agents.Listener.Close(), operators.Listener.Close())
	}
	defer func() { _ = st.lock.Close() }() // every write was synced already
	s.core = newCore(s.o, s.totals, st, state, time.Now())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 2)
	var wg sync.WaitGroup
	start := func(e *Endpoint, srv *http.Server, connections int) {
		if e.Bound != nil {
			e.Listener = e.Bound(srv, e.Listener, connections, s.o.Log)
		}
		wg.Go(func() { ended <- e.serve(ctx, e.Listener, srv); cancel() })
	}
	start(agents, s.agents(agents.Login), s.o.MaxAgents+maxHTTPRequests)
	start(operators, s.operators(operators.Login), maxHTTPRequests)
	wg.Go(func() {
		every(ctx, min(time.Second, s.o.ReloadInterval), func() { s.locked(func(c *core) { c.tick(time.Now()) }) })
	})
	wg.Go(func() {
		Watch(ctx, s.o.ReloadInterval, func() (*Plan, error) { return ReadDirectory(s.o.Directory, s.o.ParseYAML) }, func(p *Plan, err error) {
			s.locked(func(c *core) { c.applyPlan(p, err, time.Now()) })
		})
	})
	wg.Wait()
	return errors.Join(<-ended, <-ended)
}

// every calls f now and at each interval until ctx ends.
func every(ctx context.Context, interval time.Duration, f func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		f()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// locked calls f under the state's lock.
func (s *Server) locked(f func(*core)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.core)
}

// bounded returns an HTTP server that limits each request. Its own errors are logged at level debug.
func (s *Server) bounded(h http.Handler, toAnswer time.Duration) *http.Server {
	messages, _ := zap.NewStdLogAt(s.o.Log, zap.DebugLevel) // only unknown levels fail
	return &http.Server{
		Handler: h, MaxHeaderBytes: maxHeaderBytes, ErrorLog: messages,
		ReadHeaderTimeout: messageWithin, ReadTimeout: messageWithin, WriteTimeout: toAnswer, IdleTimeout: 2 * time.Minute,
	}
}

// Endpoint is a listening address for agents or operators.
type Endpoint struct {
	Listener net.Listener
	Login    *Login
	Serve    func(*http.Server, net.Listener) error
	Bound    func(*http.Server, net.Listener, int, *zap.Logger) net.Listener // limits the connections
}

// serve serves until ctx ends.
func (e *Endpoint) serve(ctx context.Context, l net.Listener, srv *http.Server) error {
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if srv.Shutdown(limited) != nil {
			_ = srv.Close() // Close closes all connections even if it fails
		}
	})
	err := e.Serve(srv, l)
	if !stop() {
		<-stopped
	}
	if err == nil || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve on %s: %w", l.Addr(), err)
}
