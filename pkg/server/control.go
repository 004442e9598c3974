package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
)

// command is a path that changes something: POST or PUT, without a body.
type command struct {
	path, label string
	verb, done  string // for answers: "reload: …", "reloaded"
	enabled     bool
	disabled    string   // the answer if it is disabled
	parameters  []string // parameters of the query: collector=NAME, for=DURATION
	timeout     time.Duration
	run         func(ctx context.Context, collector string, limit time.Duration, cause string) error
}

func (s *Server) commands() []command {
	const release, profiling = "release over HTTP is not enabled", "pausing profiling over HTTP is not enabled"
	d := s.o.Desk
	out := []command{
		{"/-/reload", "/-/reload", "reload", "reloaded", s.o.Reload, "reload over HTTP is not enabled", nil, reloadTimeout,
			func(ctx context.Context, _ string, _ time.Duration, cause string) error { return d.Reload(ctx, cause) }},
		{"/-/release", "/-/release", "release", "released", s.o.Release, release, []string{"collector", "for"}, releaseTimeout,
			func(ctx context.Context, name string, limit time.Duration, cause string) error {
				return d.Release(ctx, name, limit, cause)
			}},
		{"/-/resume", "/-/resume", "resume", "resumed", s.o.Release, release, []string{"collector"}, releaseTimeout,
			func(_ context.Context, name string, _ time.Duration, cause string) error {
				return d.Resume(name, cause)
			}},
		{"/-/profiling/pause", "/-/profiling", "pause", "paused", s.o.Release, profiling, []string{"for"}, reloadTimeout,
			func(ctx context.Context, _ string, limit time.Duration, cause string) error {
				return d.PauseProfiling(ctx, limit, cause)
			}},
		{"/-/profiling/resume", "/-/profiling", "resume", "resumed", s.o.Release, profiling, nil, reloadTimeout,
			func(ctx context.Context, _ string, _ time.Duration, cause string) error {
				return d.ResumeProfiling(ctx, cause)
			}},
	}
	for i := range s.o.Routes {
		r := &s.o.Routes[i]
		if c := r.Command; c != nil {
			out = append(out, command{r.path(), r.path(), c.Verb, c.Done, c.Run != nil, c.Disabled, nil, releaseTimeout,
				func(ctx context.Context, _ string, _ time.Duration, _ string) error { return c.Run(ctx) }})
		}
	}
	return out
}

// serveCommand runs a command. It does not stop when the client leaves, only when the server ends.
func (s *Server) serveCommand(c *command, w http.ResponseWriter, r *http.Request) {
	if !c.enabled {
		writeText(w, http.StatusForbidden, c.disabled+"\n")
		return
	}
	// A browser sends a POST for any page that requests it.
	err := http.NewCrossOriginProtection().Check(r)
	if err == nil {
		err = checkHost(r)
	}
	if err != nil {
		writeText(w, http.StatusForbidden, err.Error()+"\n")
		return
	}
	collector, limit, err := parseQuery(r.URL.RawQuery, c.parameters)
	if err != nil {
		writeText(w, http.StatusBadRequest, c.verb+": "+err.Error()+"\n")
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(c.timeout + s.o.WriteTimeout)) // a recorder has none
	ctx, cancel := context.WithTimeout(detach(r.Context()), c.timeout)
	defer cancel()
	switch err := c.run(ctx, collector, limit, "POST "+c.path); {
	case err == nil:
		writeText(w, http.StatusOK, c.done+"\n")
	case errors.As(err, new(interface{ Waiting() })):
		writeText(w, http.StatusAccepted, c.verb+": "+err.Error()+"\n")
	case errors.Is(err, fs.ErrNotExist):
		writeText(w, http.StatusNotFound, c.verb+": "+err.Error()+"\n")
	default:
		writeText(w, http.StatusInternalServerError, c.verb+": "+err.Error()+"\n")
	}
}

// checkHost refuses a browser's request with another machine's name as Host: that name's owner may have pointed
// it here after serving a page, which then has the same origin. Other programs may use any name.
func checkHost(r *http.Request) error {
	if r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == "" {
		return nil
	}
	host := (&url.URL{Host: r.Host}).Hostname()
	own, _ := os.Hostname() // without it only addresses are accepted
	if _, err := netip.ParseAddr(host); err == nil || host == "localhost" || own != "" && strings.EqualFold(host, own) {
		return nil
	}
	return fmt.Errorf("a browser asked for host %q: use an address, localhost or the name of this machine", host)
}

// parseQuery rejects misspelt parameters, which would otherwise release all collectors instead of one, or for ever
// instead of for a minute. It returns a limit of 0 in the query as -1.
func parseQuery(raw string, known []string) (collector string, limit time.Duration, err error) {
	q, err := url.ParseQuery(raw)
	if err != nil {
		return "", 0, err
	}
	for name, values := range q {
		switch {
		case !slices.Contains(known, name):
			return "", 0, errors.New("unknown parameter " + name)
		case len(values) != 1 || values[0] == "":
			return "", 0, errors.New("give " + name + " one value")
		}
	}
	text := q.Get("for")
	if text == "" {
		return q.Get("collector"), 0, nil
	}
	limit, err = time.ParseDuration(text)
	switch {
	case err != nil || limit < 0:
		return "", 0, errors.New("for is " + text + ": write a duration such as 90s or 10m, at most 2562047h, or 0 for until it is resumed")
	case limit == 0:
		limit = -1
	}
	return q.Get("collector"), limit, nil
}

type baseKey struct{}

// detach returns the server's context from a request's.
func detach(ctx context.Context) context.Context {
	if base, ok := ctx.Value(baseKey{}).(context.Context); ok {
		return base
	}
	return context.WithoutCancel(ctx)
}
