// Package server answers HTTP. Package exporter calls Run. A scrape gets bytes from memory; no handler waits for a
// device, and only /-/reload waits for a file.
//
// Paths. GET and HEAD work where nothing else is named; other methods answer 405, and other paths, including /metrics/,
// answer 404. A request with a body answers 413: no path needs one, and waiting for it would hold a connection.
//
//	/metrics       200: the page. Accept chooses between text 0.0.4, OpenMetrics 1.0 and protobuf, Accept-Encoding whether
//	               it is compressed by gzip. 503: more than Options.MaxConcurrentScrapes at a time; Retry-After: 1.
//	/health        200: "OK", during a reload "OK - reload in progress". 503 and the reason if Status says that it is unhealthy.
//	/livez         200 "ok": the process answers.
//	/readyz        200 "ok", or 503 and a reason per line.
//	/-/reload      POST, PUT: 200 when the new configuration is in service, 202 if it waits, 500 and the problems otherwise, 403
//	               when not enabled, or when a browser sends it for a page of another site or under another machine's name.
//	/-/release, /-/resume, /-/profiling/pause, /-/profiling/resume
//	               the same for what Desk releases, pauses and resumes; 400 for a wrong query, 404 for an unknown collector.
//	/debug/pprof/  Go's profiles when enabled, else 404; 400 for one of more than a minute.
//
// Options.Routes are paths of extensions; their commands answer as /-/reload does.
//
// Headers. All answers carry X-Content-Type-Options: nosniff. /metrics has Content-Type with the format's version,
// Content-Length always, Vary: Accept, Accept-Encoding, and Content-Encoding: gzip if compressed. /health has
// X-Registry-Available: true or false, and during a reload X-Reload-In-Progress: true. The page has a
// Content-Security-Policy under which it loads nothing from other places.
//
// Limits. Header, read, write and idle timeouts, the size of headers, the connections (see connections), the memory of
// pages that are being sent (see sending), the passwords that are checked at a time (see logins). TLS, basic auth,
// systemd sockets and further headers come from exporter-toolkit.
//
// Goroutines. Run owns the listeners' goroutines and ends them; handlers run in those of net/http. A Server's methods
// may be called from any goroutine.
package server

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Pages supplies pages: *exposition.Renderer. Negotiated returns the newest one in the form that the headers of a request
// ask for. It waits only for rendering.
type Pages interface {
	Negotiated(accept, acceptEncoding string) (page []byte, contentType string, gzip bool)
}

// Server serves pages over HTTP.
type Server struct {
	pages  Pages
	o      Options
	log    *zap.Logger
	mux    http.ServeMux
	labels map[string]string // of the mux's patterns, for stats
	stats  *stats
	conns  *connections
	logins *logins

	scrapes  atomic.Int64 // currently in the handler
	sending  sending
	draining atomic.Bool

	mu        sync.Mutex
	listeners []net.Listener
	web       *WebConfig
}

// New returns a Server that does not listen yet. It panics if o.Registerer has the metrics of another Server.
func New(pages Pages, o Options) *Server {
	o.setDefaults()
	s := &Server{
		pages:  pages,
		o:      o,
		log:    o.Logger.Named("server"),
		labels: map[string]string{},
	}
	s.stats = newStats()
	s.conns = newConnections(o.MaxConnections, s.stats.evicted, s.log)
	s.stats.register(o.Registerer, s.conns)
	if o.WebConfigFile != "" {
		s.logins = newLogins(o.Registerer, s.log)
		s.logins.restore(o.Store)
	}

	s.handle("GET /metrics", "/metrics", s.serveMetrics)
	s.stats.requests.WithLabelValues("/metrics", strconv.Itoa(http.StatusServiceUnavailable))
	s.handle("GET /health", "/health", s.serveHealth)
	s.handle("GET /livez", "/livez", serveLivez)
	s.handle("GET /readyz", "/readyz", s.serveReadyz)
	for i := range o.Routes {
		switch r := &o.Routes[i]; {
		case r.Command != nil:
		case len(r.Labels) > 0:
			s.mux.Handle(r.Pattern, r.Handler)
			for _, label := range r.Labels {
				s.labels[label] = label
			}
		default:
			s.handle(r.Pattern, r.path(), r.Handler.ServeHTTP)
		}
	}
	for _, c := range s.commands() {
		for _, method := range []string{http.MethodPost, http.MethodPut} {
			s.handle(method+" "+c.path, c.label, func(w http.ResponseWriter, r *http.Request) { s.serveCommand(&c, w, r) })
		}
	}
	if o.Pprof {
		// net/http/pprof also registers them with http.DefaultServeMux, which is never served here.
		for path, f := range map[string]http.HandlerFunc{
			"": pprof.Index, "cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace,
		} {
			s.handle("GET "+pprofPrefix+path, pprofLabel, boundProfile(f))
		}
	}
	return s
}

const (
	pprofPrefix = "/debug/pprof/"
	pprofLabel  = "/debug/pprof"
	otherLabel  = "other" // for answers of the mux itself
)

func boundProfile(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text := r.URL.Query().Get("seconds")
		seconds, err := strconv.ParseFloat(text, 64)
		if text != "" && (err != nil || !(seconds >= 0 && seconds <= maxProfile.Seconds())) {
			writeText(w, http.StatusBadRequest, fmt.Sprintf("seconds is %q: write a number up to %v\n", text, maxProfile.Seconds()))
			return
		}
		f(w, r)
	}
}

// handle serves a pattern and counts its answers under a label.
func (s *Server) handle(pattern, label string, f http.HandlerFunc) {
	s.mux.HandleFunc(pattern, f)
	s.labels[pattern] = label
	s.stats.requests.WithLabelValues(label, strconv.Itoa(http.StatusOK)) // exists from the start
}

// Handler returns the Server's handler without listening: no TLS, no authentication, no connection limit.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	c := &codeWriter{ResponseWriter: w, code: http.StatusOK}
	if r.ContentLength != 0 {
		refuseBody(c)
	} else {
		s.mux.ServeHTTP(c, r)
	}
	label := cmp.Or(s.labels[r.Pattern], otherLabel)
	s.stats.requests.WithLabelValues(label, strconv.Itoa(c.code)).Inc()
}

// refuseBody answers without reading the body. It also makes further reads fail, because net/http would read up to 256
// KiB of it after the handler, at the client's pace.
func refuseBody(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) // a recorder has none
	writeText(w, http.StatusRequestEntityTooLarge, "no path takes a body\n")
}

func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text)) //nolint:gosec // plain text under nosniff; an error says that the client went away
}

// codeWriter records the status code.
type codeWriter struct {
	http.ResponseWriter
	code int
}

func (c *codeWriter) WriteHeader(code int) {
	c.code = code
	c.ResponseWriter.WriteHeader(code)
}

// Unwrap lets http.ResponseController find the connection.
func (c *codeWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// stats are the server's own metrics.
type stats struct {
	requests *prometheus.CounterVec
	scrape   prometheus.Histogram
	aborted  prometheus.Counter
	evicted  prometheus.Counter
}

func newStats() *stats {
	s := &stats{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "warpgauge_http_requests_total", Help: "HTTP requests answered, by path and status code. Requests that fail authentication are not counted."}, []string{"path", "code"}),
		scrape: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "warpgauge_scrape_duration_seconds",
			Help: "Time from the start of a scrape's handler until its page was handed to the network, rendering included where the page was not rendered yet.",
			Buckets: []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01,
				.025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}),
		aborted: prometheus.NewCounter(prometheus.CounterOpts{Name: "warpgauge_scrapes_aborted_total", Help: "Scrapes whose page could not be sent whole: the client went away or read too slowly."}),
		evicted: prometheus.NewCounter(prometheus.CounterOpts{Name: "warpgauge_http_connections_evicted_total", Help: "Connections closed in favour of a new one because the limit of connections was reached, in all or for connections without a request from one address."}),
	}
	s.requests.WithLabelValues(otherLabel, strconv.Itoa(http.StatusNotFound))
	return s
}

// register registers the metrics with reg, which may be nil. It panics if reg has such metrics already.
func (s *stats) register(reg prometheus.Registerer, conns *connections) {
	if reg != nil {
		reg.MustRegister(s.requests, s.scrape, s.aborted, s.evicted, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "warpgauge_http_connections", Help: "Open HTTP connections."}, func() float64 { return float64(conns.count()) }))
	}
}

func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	if n := s.scrapes.Add(1); s.o.MaxConcurrentScrapes > 0 && n > int64(s.o.MaxConcurrentScrapes) {
		s.scrapes.Add(-1)
		w.Header().Set("Retry-After", "1")
		writeText(w, http.StatusServiceUnavailable, "too many scrapes at a time\n")
		return
	}
	defer s.scrapes.Add(-1)
	start := time.Now()
	page, contentType, gzip := s.pages.Negotiated(headerList(r.Header, "Accept"), headerList(r.Header, "Accept-Encoding"))

	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(page)))
	h.Set("Vary", "Accept, Accept-Encoding")
	if gzip {
		h.Set("Content-Encoding", "gzip")
	}
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead && len(page) > 0 {
		end := s.sending.begin(page, func() {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0)) // a recorder has none
		})
		_, err := w.Write(page) //nolint:gosec // the page repeats nothing of the request
		end()
		if err != nil {
			s.stats.aborted.Inc()
		}
	}
	s.stats.scrape.Observe(time.Since(start).Seconds())
}

// headerList joins the lines of a header that clients may send as several.
func headerList(h http.Header, name string) string { return strings.Join(h[name], ",") }

// maxSendingBytes bounds the memory of pages being sent. Clients that read slowly hold a page each; a page of 200
// GPUs has 6 MB.
const maxSendingBytes = 64 << 20

// sending tracks the pages being sent. When they use too much memory together, it cuts off the longest-running scrapes.
// A page with many readers counts once.
type sending struct {
	mu      sync.Mutex
	scrapes []*scrape // the oldest first
}

type scrape struct {
	page []byte
	cut  func()
}

// begin records that page is being sent until end is called. It may call cut in between.
func (s *sending) begin(page []byte, cut func()) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	begun := &scrape{page, cut}
	s.scrapes = append(s.scrapes, begun)
	for s.scrapes[0] != begun && s.bytesLocked() > maxSendingBytes {
		s.scrapes[0].cut()
		s.scrapes = s.scrapes[1:]
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.scrapes = slices.DeleteFunc(s.scrapes, func(sc *scrape) bool { return sc == begun })
	}
}

// bytesLocked returns the bytes of the pages.
func (s *sending) bytesLocked() (n int) {
	seen := map[*byte]bool{}
	for _, sc := range s.scrapes {
		if first := &sc.page[0]; !seen[first] {
			seen[first] = true
			n += len(sc.page)
		}
	}
	return n
}

// serveHealth answers as dcgm-exporter does: 200 unless GPUs are required and missing, with the state in headers.
func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	st := s.o.Status()
	w.Header().Set("X-Registry-Available", strconv.FormatBool(st.Available))
	text := "OK"
	if st.Reloading {
		w.Header().Set("X-Reload-In-Progress", "true")
		text = "OK - reload in progress"
	}
	if st.Unhealthy != "" {
		writeText(w, http.StatusServiceUnavailable, st.Unhealthy+"\n")
		return
	}
	writeText(w, http.StatusOK, text)
}

// serveLivez only reports that the process answers: restarting it would repair no device.
func serveLivez(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok\n") }

func (s *Server) serveReadyz(w http.ResponseWriter, _ *http.Request) {
	reasons := s.o.Status().NotReady
	if s.draining.Load() {
		reasons = append(reasons[:len(reasons):len(reasons)], "shutting down")
	}
	if len(reasons) == 0 {
		writeText(w, http.StatusOK, "ok\n")
		return
	}
	text := strings.Join(reasons, "\x00")
	writeText(w, http.StatusServiceUnavailable, strings.NewReplacer("\n", " ", "\x00", "\n").Replace(text)+"\n")
}
