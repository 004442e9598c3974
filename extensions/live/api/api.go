// Package api answers queries about this node in JSON, under /api/v1/. It reads the same immutable
// views, states and owners as /metrics, so no answer waits for a GPU. It never changes the
// exporter's state. Package apiv1 has the types of the answers.
package api

import (
	"bytes"
	"context"
	_ "embed" // openapi.json
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"
	"go.uber.org/zap"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/lists"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// Prefix is the API's path. Every path in Paths begins with it.
const Prefix = "/api/v1/"

//go:embed openapi.json
var openAPI []byte

// Node is the node's collectors. *exporter.Engine implements it.
type Node interface {
	Status() []session.CollectorStatus     // in order of priority
	Vendor(collector string) *field.Vendor // nil: unknown or simulated
	Interval(field.Reading) time.Duration
}

// People tells who uses devices.
type People interface {
	Users(*collector.Device) []apiv1.User
	Processes(*collector.Device) []apiv1.Process
	Viewed() // a client asks for processes; a stream does about once a second
}

// Options are the API's sources. They must be safe for concurrent use and must not block.
type Options struct {
	Hostname, Version string
	Recording         string // name of the replayed recording; "" on a live node

	Board    *view.Board
	Node     Node
	Verdicts interface{ Load() *events.Snapshot }
	NotReady func() []string                          // why /readyz answers 503
	Lists    interface{ Status() lists.Status }       // nil: unknown
	Page     interface{ Counts() []exposition.Count } // series that count events
	People   People                                   // nil: no names are shown
	Events   *Log
	Past     *rows.Past // samples and recordings
	Download bool       // serve recordings
	// States tells since when a device is in a state; nil: unknown.
	States interface {
		Since(device string, state session.State) (time.Time, bool)
	}

	StaleAfter time.Duration    // omit the values of a device with an older sample
	Now        func() time.Time // the displayed time
	Logger     *zap.Logger
}

func (o *Options) viewed() {
	if o.People != nil {
		o.People.Viewed()
	}
}

// API is an http.Handler for all paths below Prefix.
type API struct {
	o     Options
	mux   http.ServeMux
	paths []string

	building chan struct{} // one token per answer in preparation
	waiting  atomic.Int64  // requests that wait for a token
	streams  streams
	sending  atomic.Int64 // bytes of the answers that are being sent
}

// Limits over all clients together.
const (
	maxQuery    = 8 << 10  // bytes
	maxValues   = 256      // per parameter
	maxBuilding = 2        // answers prepared in parallel
	maxWaiting  = 64       // requests that wait for that
	maxSending  = 64 << 20 // bytes of answers that are being sent
	maxAnswer   = 32 << 20 // bytes of one answer
	sendTimeout = 10 * time.Second
	minGzip     = 1 << 10 // smallest answer to compress, in bytes
)

// New returns an API.
func New(o Options) *API {
	a := &API{o: o, building: make(chan struct{}, maxBuilding)}
	a.streams.api = a
	a.streams.closing, a.streams.close = context.WithCancel(context.Background()) //nolint:fatcontext // lives longer than New
	files := recordings{o: &a.o}
	a.answer("devices", nil, func(*query) (any, error) { return a.Devices(), nil })
	a.answer("fields", []string{"device", "field"}, func(q *query) (any, error) { return a.Fields(q.Values["device"], q.Values["field"]) })
	a.answer("health", nil, func(*query) (any, error) { return a.o.health(), nil })
	a.answer("list", nil, func(*query) (any, error) { return a.o.list() })
	a.answer("events", []string{"since", "limit"}, func(q *query) (any, error) { return a.o.Events.events(q, a.o.Now()) })
	a.answer("samples", []string{"device", "field", "since", "until", "points"}, func(q *query) (any, error) { return samples(&a.o, q) })
	a.answer("recordings", nil, func(*query) (any, error) { return files.list() })
	a.handle("recordings/{name}", nil, files.serve)
	a.handle("stream", []string{"device", "field", "interval"}, a.streams.serve)
	a.answer("openapi.json", nil, func(*query) (any, error) { return json.RawMessage(openAPI), nil })
	a.mux.HandleFunc(Prefix, func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, r, &apiv1.Problem{Status: http.StatusNotFound, Detail: "there is no " + r.URL.Path + ": the paths are " + strings.Join(a.paths, ", ")})
	})
	return a
}

// Devices returns the answer of /api/v1/devices.
func (a *API) Devices() *apiv1.Devices { return newNode(&a.o).devicesAnswer() }

// Fields returns the answer of /api/v1/fields.
func (a *API) Fields(devices, patterns []string) (*apiv1.Fields, error) {
	return newNode(&a.o).fields(&query{url.Values{"device": devices, "field": patterns}})
}

// ServeHTTP answers a request. It sets r.Pattern to one of Paths, or to Prefix.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// Close ends all streams. The server calls it before it waits for active requests.
func (a *API) Close() { a.streams.close() }

// Paths returns all paths of the API.
func (a *API) Paths() []string { return slices.Clone(a.paths) }

// answer serves a path with the JSON result of f.
func (a *API) answer(name string, parameters []string, f func(*query) (any, error)) {
	a.handle(name, parameters, func(w http.ResponseWriter, r *http.Request, q *query) error {
		return a.writeJSON(w, r, func() (any, error) { return f(q) })
	})
}

// handle serves a path. It applies the checks that all paths share.
func (a *API) handle(name string, parameters []string, f func(http.ResponseWriter, *http.Request, *query) error) {
	path := Prefix + name
	a.paths = append(a.paths, path)
	a.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Vary", "Accept-Encoding")
		q, err := parseQuery(r, parameters)
		if err == nil {
			err = f(w, r, q)
		}
		var p *apiv1.Problem
		switch {
		case err == nil:
		case errors.As(err, &p):
			writeProblem(w, r, p)
		case r.Context().Err() != nil: // the client has gone
		default:
			a.o.Logger.Named("api").Error("cannot answer", zap.String("path", path), zap.Error(err))
			writeProblem(w, r, &apiv1.Problem{Status: http.StatusInternalServerError, Detail: err.Error()})
		}
	})
}

// query holds a client's parameters.
type query struct{ url.Values }

// parseQuery refuses wrong methods, browser requests from other sites, and unknown parameters.
func parseQuery(r *http.Request, known []string) (*query, error) {
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		return nil, &apiv1.Problem{Status: http.StatusMethodNotAllowed, Detail: "the API changes nothing: use GET or HEAD"}
	case r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate":
		// A browser would not show that site the answer, so do not spend time on it.
		return nil, &apiv1.Problem{Status: http.StatusForbidden, Detail: "a page of another site asked: open this address itself"}
	case len(r.URL.RawQuery) > maxQuery:
		return nil, &apiv1.Problem{Status: http.StatusRequestURITooLong, Detail: fmt.Sprintf("the query has more than %d bytes: ask for fewer devices or fields, or leave them out for all", maxQuery)}
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badQuery("the query cannot be read: %v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case !slices.Contains(known, name) && len(known) == 0:
			return nil, badQuery("unknown parameter %q: this path takes none", name)
		case !slices.Contains(known, name):
			return nil, badQuery("unknown parameter %q: this path takes %s", name, strings.Join(known, ", "))
		case len(values[name]) > maxValues:
			return nil, badQuery("%d times %q: at most %d", len(values[name]), name, maxValues)
		case slices.Contains(values[name], ""):
			return nil, badQuery("give %q a value, or leave it out", name)
		}
	}
	return &query{values}, nil
}

// one returns the value of a parameter that may appear once, or "" if it is absent.
func (q *query) one(name string) (string, error) {
	if n := len(q.Values[name]); n > 1 {
		return "", badQuery("%d times %q: give it once", n, name)
	}
	return q.Get(name), nil
}

// complete sets the fields that depend on the status.
func complete(p *apiv1.Problem) { p.Type, p.Title = "about:blank", http.StatusText(p.Status) }

func badQuery(format string, args ...any) *apiv1.Problem {
	return &apiv1.Problem{Status: http.StatusBadRequest, Detail: fmt.Sprintf(format, args...)}
}

// busy tells a client to try again later.
func busy(detail string) *apiv1.Problem {
	return &apiv1.Problem{Status: http.StatusServiceUnavailable, Detail: detail}
}

// writeProblem sends an error.
func writeProblem(w http.ResponseWriter, r *http.Request, p *apiv1.Problem) {
	complete(p)
	h := w.Header()
	switch p.Status {
	case http.StatusMethodNotAllowed:
		h.Set("Allow", "GET, HEAD")
	case http.StatusServiceUnavailable:
		h.Set("Retry-After", "1")
	}
	h.Set("Content-Type", "application/problem+json")
	h.Set("X-Content-Type-Options", "nosniff")
	body := encode(p)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // an error means that the client went away
	}
}

// begin waits for a token to prepare an answer, so that API clients leave processors to scrapes.
func (a *API) begin(ctx context.Context) (end func(), err error) {
	defer a.waiting.Add(-1)
	if a.waiting.Add(1) > maxWaiting {
		return nil, busy("too many requests at a time: ask again in a second")
	}
	select {
	case a.building <- struct{}{}:
		return func() { <-a.building }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// writeJSON sends the JSON result of f within the time limit.
func (a *API) writeJSON(w http.ResponseWriter, r *http.Request, f func() (any, error)) error {
	body, err := a.encode(w, r, f)
	if err != nil {
		return err
	}
	defer a.sending.Add(-int64(len(body)))
	if a.sending.Add(int64(len(body))) > maxSending {
		w.Header().Del("Content-Encoding")
		return busy("too many answers are being sent: ask again in a second")
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(sendTimeout)) // a test's recorder has no deadlines
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) //nolint:gosec // JSON, which browsers do not render; an error means that the client went away
	}
	return nil
}

// encode returns the JSON result of f, compressed if the client accepts it.
func (a *API) encode(w http.ResponseWriter, r *http.Request, f func() (any, error)) ([]byte, error) {
	end, err := a.begin(r.Context())
	if err != nil {
		return nil, err
	}
	defer end()
	v, err := f()
	if err != nil {
		return nil, err
	}
	body := encode(v)
	switch {
	case len(body) > maxAnswer:
		return nil, &apiv1.Problem{Status: http.StatusBadRequest, Detail: fmt.Sprintf("the answer has more than %d MiB: ask for fewer devices or fields", maxAnswer>>20)}
	case len(body) < minGzip || !exposition.AcceptsGzip(strings.Join(r.Header["Accept-Encoding"], ",")):
		return body, nil
	}
	w.Header().Set("Content-Encoding", "gzip")
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err == nil {
		_, err = z.Write(body)
		err = errors.Join(err, z.Close())
	}
	return out.Bytes(), err
}

// encode returns a value of this package as one line of JSON.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // with nosniff, browsers do not read it as HTML
	if err := e.Encode(v); err != nil {
		panic("api: encode: " + err.Error()) // NaN and infinities are null already
	}
	return b.Bytes()
}
