package server

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"
)

// ErrUnknownCollector is wrapped by errors of Options.Release and Resume that
// concern a name that no collector has.
var ErrUnknownCollector = errors.New("no such collector is enabled")

// serveRelease runs Options.Release. Queries: collector=NAME, for=DURATION.
func (s *Server) serveRelease(w http.ResponseWriter, r *http.Request) int {
	if code := s.refuseRelease(w, r); code != 0 {
		return code
	}
	q, err := releaseQuery(r.URL.RawQuery, "collector", "for")
	var limit time.Duration
	if text := q.Get("for"); err == nil && text != "" {
		limit, err = parseLimit(text)
	}
	if err != nil {
		return writeText(w, r, http.StatusBadRequest, "release: "+err.Error()+"\n")
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(releaseTimeout + s.o.WriteTimeout)) // a recorder has none
	ctx, cancel := context.WithTimeout(detach(r.Context()), releaseTimeout)
	defer cancel()
	return answerRelease(w, r, "release", s.o.Release(ctx, q.Get("collector"), limit))
}

// serveResume runs Options.Resume. Query: collector=NAME.
func (s *Server) serveResume(w http.ResponseWriter, r *http.Request) int {
	if code := s.refuseRelease(w, r); code != 0 {
		return code
	}
	q, err := releaseQuery(r.URL.RawQuery, "collector")
	if err != nil {
		return writeText(w, r, http.StatusBadRequest, "resume: "+err.Error()+"\n")
	}
	return answerRelease(w, r, "resume", s.o.Resume(q.Get("collector")))
}

// refuseRelease answers what must not get through, and returns 0 for the rest.
func (s *Server) refuseRelease(w http.ResponseWriter, r *http.Request) int {
	if r.Method != http.MethodPost && r.Method != http.MethodPut {
		w.Header().Set("Allow", "POST, PUT")
		return writeText(w, r, http.StatusMethodNotAllowed, "release and resume with POST or PUT\n")
	}
	if s.o.Release == nil || s.o.Resume == nil {
		return writeText(w, r, http.StatusForbidden, "release over HTTP is not enabled\n")
	}
	if err := http.NewCrossOriginProtection().Check(r); err != nil { // see serveReload
		return writeText(w, r, http.StatusForbidden, err.Error()+"\n")
	}
	return 0
}

func answerRelease(w http.ResponseWriter, r *http.Request, verb string, err error) int {
	switch {
	case err == nil:
		return writeText(w, r, http.StatusOK, verb+"d\n")
	case errors.Is(err, ErrUnknownCollector):
		return writeText(w, r, http.StatusNotFound, verb+": "+err.Error()+"\n")
	}
	return writeText(w, r, http.StatusInternalServerError, verb+": "+err.Error()+"\n")
}

// releaseQuery refuses what a person has misspelt: a release of all collectors
// instead of one, or for ever instead of a minute, would be the consequence.
func releaseQuery(raw string, known ...string) (url.Values, error) {
	q, err := url.ParseQuery(raw)
	if err != nil {
		return nil, err
	}
	for name, values := range q {
		ok := false
		for _, k := range known {
			ok = ok || name == k
		}
		switch {
		case !ok:
			return nil, errors.New("unknown parameter " + name)
		case len(values) != 1 || values[0] == "":
			return nil, errors.New("give " + name + " one value")
		}
	}
	return q, nil
}

// parseLimit reads a duration; 0 means until it is resumed.
func parseLimit(text string) (time.Duration, error) {
	limit, err := time.ParseDuration(text)
	switch {
	case err != nil || limit < 0:
		return 0, errors.New("for is " + text + ": write a duration such as 90s or 10m, or 0 for until it is resumed")
	case limit == 0:
		return -1, nil
	}
	return limit, nil
}
