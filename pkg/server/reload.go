package server

import (
	"context"
	"net/http"
	"time"
)

// serveReload runs Options.Reload, for one request at a time.
func (s *Server) serveReload(w http.ResponseWriter, r *http.Request) int {
	if r.Method != http.MethodPost && r.Method != http.MethodPut {
		w.Header().Set("Allow", "POST, PUT")
		return writeText(w, r, http.StatusMethodNotAllowed, "reload with POST or PUT\n")
	}
	if s.o.Reload == nil {
		return writeText(w, r, http.StatusForbidden, "reload over HTTP is not enabled\n")
	}
	// A browser sends a POST for any page that asks it to.
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return writeText(w, r, http.StatusForbidden, err.Error()+"\n")
	}
	deadline := time.Now().Add(reloadTimeout + s.o.WriteTimeout)
	_ = http.NewResponseController(w).SetWriteDeadline(deadline) // a recorder has none
	if err := s.reload(r); err != nil {
		return writeText(w, r, http.StatusInternalServerError, "reload: "+err.Error()+"\n")
	}
	return writeText(w, r, http.StatusOK, "reloaded\n")
}

// reload does not stop half-way because a client has gone away. The request's
// server still ends it: its context is the base of the request's.
func (s *Server) reload(r *http.Request) error {
	ctx, cancel := context.WithTimeout(detach(r.Context()), reloadTimeout)
	defer cancel()
	select {
	case s.reloading <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.reloading }()
	return s.o.Reload(ctx)
}

type baseKey struct{}

// baseContext makes the server's context findable in those of its requests.
func baseContext(base context.Context) context.Context {
	return context.WithValue(base, baseKey{}, base)
}

// detach returns the server's context for a request's.
func detach(ctx context.Context) context.Context {
	if base, ok := ctx.Value(baseKey{}).(context.Context); ok {
		return base
	}
	return context.WithoutCancel(ctx)
}
