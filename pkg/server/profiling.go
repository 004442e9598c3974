package server

import (
	"context"
	"net/http"
	"time"
)

// servePause runs Options.PauseProfiling. Query: for=DURATION.
func (s *Server) servePause(w http.ResponseWriter, r *http.Request) int {
	if code := s.refusePause(w, r); code != 0 {
		return code
	}
	q, err := releaseQuery(r.URL.RawQuery, "for")
	var limit time.Duration
	if text := q.Get("for"); err == nil && text != "" {
		limit, err = parseLimit(text)
	}
	if err != nil {
		return writeText(w, r, http.StatusBadRequest, "pause: "+err.Error()+"\n")
	}
	return s.answerPause(w, r, "pause", func(ctx context.Context) error { return s.o.PauseProfiling(ctx, limit) })
}

// serveUnpause runs Options.ResumeProfiling.
func (s *Server) serveUnpause(w http.ResponseWriter, r *http.Request) int {
	if code := s.refusePause(w, r); code != 0 {
		return code
	}
	if _, err := releaseQuery(r.URL.RawQuery); err != nil {
		return writeText(w, r, http.StatusBadRequest, "resume: "+err.Error()+"\n")
	}
	return s.answerPause(w, r, "resume", s.o.ResumeProfiling)
}

// refusePause answers what must not get through, and returns 0 for the rest.
func (s *Server) refusePause(w http.ResponseWriter, r *http.Request) int {
	if r.Method != http.MethodPost && r.Method != http.MethodPut {
		w.Header().Set("Allow", "POST, PUT")
		return writeText(w, r, http.StatusMethodNotAllowed, "pause and resume profiling with POST or PUT\n")
	}
	if s.o.PauseProfiling == nil || s.o.ResumeProfiling == nil {
		return writeText(w, r, http.StatusForbidden, "pausing profiling over HTTP is not enabled\n")
	}
	if err := http.NewCrossOriginProtection().Check(r); err != nil { // see serveReload
		return writeText(w, r, http.StatusForbidden, err.Error()+"\n")
	}
	return 0
}

// answerPause does not stop half-way because a client has gone away.
func (s *Server) answerPause(w http.ResponseWriter, r *http.Request, verb string, do func(context.Context) error) int {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(reloadTimeout + s.o.WriteTimeout)) // a recorder has none
	ctx, cancel := context.WithTimeout(detach(r.Context()), reloadTimeout)
	defer cancel()
	if err := do(ctx); err != nil {
		return writeText(w, r, http.StatusInternalServerError, verb+": "+err.Error()+"\n")
	}
	return writeText(w, r, http.StatusOK, verb+"d\n")
}
