package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log" //nolint:depguard // the type that http.Server takes
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"go.uber.org/zap"
	"golang.org/x/net/netutil"
)

// Run serves until ctx ends or a listener fails, then stops accepting, lets running requests finish for
// Options.DrainTimeout and closes the rest. It returns nil after ctx has ended. It may be called once.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Listen(ctx); err != nil {
		return err
	}
	// Running requests may finish after ctx has ended.
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	base = context.WithValue(base, baseKey{}, base) // for detach

	var servers []*http.Server
	ended := make(chan error, len(s.listeners))
	for _, l := range s.listeners {
		srv := s.httpServer(base)
		servers = append(servers, srv)
		s.log.Info("serving " + s.url(l))
		go func() { ended <- s.serveOn(srv, l) }()
	}

	var first error
	running := len(servers)
	select {
	case <-ctx.Done():
	case first = <-ended:
		running--
	}
	s.drain(servers)
	for ; running > 0; running-- {
		if err := <-ended; first == nil {
			first = err
		}
	}
	return first
}

// httpServer returns the net/http server for one listener. Each listener has its own server because its WebConfig wraps the
// handler.
func (s *Server) httpServer(base context.Context) *http.Server {
	return &http.Server{
		Handler:           http.HandlerFunc(s.serve),
		ReadHeaderTimeout: min(readHeaderTimeout, s.o.ReadTimeout),
		ReadTimeout:       s.o.ReadTimeout,
		WriteTimeout:      s.o.WriteTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnState:         s.conns.changed,
		ErrorLog:          log.New(errorWriter{s.log}, "", 0),
	}
}

// serveOn serves one listener until its server is shut down, and returns nil then.
func (s *Server) serveOn(srv *http.Server, l net.Listener) error {
	defer func() { _ = l.Close() }() // the server may have closed it
	err := s.web.Serve(srv, l)
	if err == nil || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve on %s: %w", l.Addr(), err)
}

// drain shuts all servers down within the drain timeout.
//
// net/http waits up to 5 s for a connection that has sent nothing, and for an incomplete header until its timeout.
// drain closes such connections after a moment, which is enough for a request on its way.
func (s *Server) drain(servers []*http.Server) {
	s.draining.Store(true)
	for i := range s.o.Routes {
		if end := s.o.Routes[i].Close; end != nil {
			end()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.o.DrainTimeout)
	defer cancel()
	stalled := time.AfterFunc(drainWaitTimeout, s.conns.closeWaiting)
	defer stalled.Stop()

	var wg sync.WaitGroup
	for _, srv := range servers {
		wg.Go(func() {
			if srv.Shutdown(ctx) != nil {
				s.log.Warn("closing requests that did not finish in time")
				_ = srv.Close() // it closes connections even after an error
			}
		})
	}
	wg.Wait()
}

func (s *Server) url(l net.Listener) string {
	if l.Addr().Network() != "tcp" {
		return l.Addr().String()
	}
	scheme := "http"
	if s.web.TLS() {
		scheme = "https"
	}
	return scheme + "://" + l.Addr().String() + "/metrics"
}

// errorWriter receives net/http's messages about single connections. Clients can cause them at will, for example with
// a failed TLS handshake, so they are at debug level; a panic in a handler is our bug and an error.
type errorWriter struct{ log *zap.Logger }

func (w errorWriter) Write(p []byte) (int, error) {
	level := zap.DebugLevel
	if bytes.Contains(p, []byte("panic serving")) {
		level = zap.ErrorLevel
	}
	if e := w.log.Check(level, "net/http: "+string(bytes.TrimSpace(p))); e != nil {
		e.Write()
	}
	return len(p), nil
}

// Listen checks the web config file and opens the listening sockets, so that configuration errors appear before
// anything else starts. Run calls Listen if that has not happened; after Listen, only Run closes the sockets. Clients
// that connect before Run are answered when it runs.
func (s *Server) Listen(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listeners != nil {
		return nil
	}
	web, err := ReadWebConfig(s.o.WebConfigFile, s.log)
	if err != nil {
		return err
	}
	if web != nil {
		web.logins = s.logins // with its metric
	}
	var open []net.Listener
	if s.o.SystemdSocket {
		open, err = systemdListeners()
	} else {
		var l net.Listener
		if l, err = new(net.ListenConfig).Listen(ctx, "tcp", s.o.Address); err != nil {
			err = listenError(s.o.Address, err)
		}
		open = []net.Listener{l}
	}
	if err != nil {
		return err
	}
	if s.web = web; web.TLS() {
		s.conns.useTLS()
	}
	for _, l := range open {
		s.listeners = append(s.listeners, netutil.LimitListener(l, s.conns.slots()))
	}
	return nil
}

// listenError adds advice to common errors.
func listenError(address string, err error) error {
	for cause, advice := range map[syscall.Errno]string{
		syscall.EADDRINUSE:    "another exporter (dcgm-exporter?) may be running",
		syscall.EACCES:        "ports below 1024 are for root or CAP_NET_BIND_SERVICE",
		syscall.EADDRNOTAVAIL: "this machine has no such address",
	} {
		if errors.Is(err, cause) {
			return fmt.Errorf("listen on %s: %w; %s, choose another with --address", address, cause, advice)
		}
	}
	return fmt.Errorf("listen on %s: %w", address, err)
}

func systemdListeners() ([]net.Listener, error) {
	passed, err := activation.Listeners()
	if err != nil {
		return nil, fmt.Errorf("take sockets from systemd: %w", err)
	}
	open := slices.DeleteFunc(passed, func(l net.Listener) bool { return l == nil }) // no stream socket
	if len(open) == 0 {
		return nil, errors.New("take sockets from systemd: none was passed; start through a .socket unit or leave out --web-systemd-socket")
	}
	for i, l := range open {
		if u, ok := l.(*net.UnixListener); ok {
			open[i] = byUser{u}
		}
	}
	return open, nil
}

// byUser is a Unix socket whose clients have their user's number for an address.
type byUser struct{ *net.UnixListener }

// Accept implements net.Listener.
func (l byUser) Accept() (net.Conn, error) {
	c, err := l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	return userConn{c, net.UnixAddr{Name: peer(c), Net: "unix"}}, nil
}

type userConn struct {
	*net.UnixConn
	user net.UnixAddr
}

// RemoteAddr implements net.Conn.
func (c userConn) RemoteAddr() net.Addr { return &c.user }

// userPrefix begins the address of a Unix socket's client.
const userPrefix = "uid:"
