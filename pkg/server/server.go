// Package server answers HTTP. A scrape gets bytes that are in memory; no handler
// waits for a device, and none but /-/reload for a file.
//
// Paths. GET and HEAD work where nothing else is named; other methods answer 405,
// other paths, /metrics/ too, 404. A request with a body answers 413: no path has a
// use for one, and waiting for it would hold a connection.
//
//	/metrics       200: the page. Accept chooses between text 0.0.4, OpenMetrics 1.0
//	               and protobuf, Accept-Encoding whether it is compressed by gzip.
//	               503: more than Options.MaxConcurrentScrapes at a time; Retry-After: 1.
//	/health        always 200: "OK", during a reload "OK - reload in progress".
//	/livez         200 "ok": the process answers.
//	/readyz        200 "ok", or 503 and a reason per line.
//	/-/reload      POST, PUT: 200 when the new configuration is in service, 500 and
//	               what is wrong with it otherwise, 403 when not enabled or asked for
//	               by a page of another site in a browser.
//	/-/release, /-/resume, /-/profiling/pause, /-/profiling/resume
//	               the same for Options.Release and so on; 400 for a wrong query,
//	               404 for an unknown collector.
//	/debug/pprof/  Go's profiles when enabled, else 404.
//	/              200: index of these.
//
// Headers. All answers carry X-Content-Type-Options: nosniff. /metrics has
// Content-Type with the format's version, Content-Length always, Vary: Accept,
// Accept-Encoding, and Content-Encoding: gzip if compressed. /health has
// X-Registry-Available: true or false, and during a reload
// X-Reload-In-Progress: true. The index has a Content-Security-Policy under
// which it loads nothing from anywhere.
//
// Limits. Header, read, write and idle timeouts, the size of headers, the
// connections (see connections), the memory of pages that are being sent (see
// sending). TLS, basic auth, systemd sockets and further headers come from
// exporter-toolkit, which also answers 401 and 429 by itself.
//
// Goroutines. Run owns the listeners' goroutines and ends them; handlers run in
// those of net/http. A Server's methods may be called from any goroutine.
package server

import (
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/pkg/exposition"
)

// Pages is where pages come from: *exposition.Renderer. Page returns the newest
// one. It waits for nothing but rendering.
type Pages interface {
	Page(f exposition.Format, gzip bool) []byte
}

var _ Pages = (*exposition.Renderer)(nil)

// Server serves pages over HTTP.
type Server struct {
	pages  Pages
	o      Options
	log    *zap.Logger
	mux    http.ServeMux
	labels map[string]string // of the mux's patterns, for stats
	stats  *stats
	conns  *connections

	scrapes   atomic.Int64 // in the handler
	sending   sending
	reloading chan struct{} // holds one token while /-/reload is at work
	draining  atomic.Bool

	mu        sync.Mutex
	listeners []net.Listener
	tls       bool
}

// New returns a Server that does not listen yet. It panics if o.Registerer has
// the metrics of another Server.
func New(pages Pages, o Options) *Server {
	o.setDefaults()
	s := &Server{
		pages:     pages,
		o:         o,
		log:       o.Logger.Named("server"),
		labels:    map[string]string{},
		reloading: make(chan struct{}, 1),
	}
	s.stats = newStats(o.Registerer, func() float64 { return float64(s.conns.count()) })
	s.conns = newConnections(o.MaxConnections, s.stats.evicted, s.log)

	s.handle("GET /metrics", "/metrics", s.serveMetrics)
	s.stats.requests.WithLabelValues("/metrics", strconv.Itoa(http.StatusServiceUnavailable))
	s.handle("GET /health", "/health", s.serveHealth)
	s.handle("GET /livez", "/livez", serveLivez)
	s.handle("GET /readyz", "/readyz", s.serveReadyz)
	s.handle("GET /{$}", "/", serveIndex(o.Version, o.Pprof))
	for _, c := range s.commands() {
		for _, method := range []string{http.MethodPost, http.MethodPut} {
			s.handle(method+" "+c.path, c.label, func(w http.ResponseWriter, r *http.Request) { s.serveCommand(&c, w, r) })
		}
	}
	if o.Pprof {
		// net/http/pprof also registers them with http.DefaultServeMux, which is never
		// served here.
		s.handle("GET "+pprofPrefix, pprofLabel, pprof.Index)
		s.handle("GET "+pprofPrefix+"cmdline", pprofLabel, pprof.Cmdline)
		s.handle("GET "+pprofPrefix+"profile", pprofLabel, pprof.Profile)
		s.handle("GET "+pprofPrefix+"symbol", pprofLabel, pprof.Symbol)
		s.handle("GET "+pprofPrefix+"trace", pprofLabel, pprof.Trace)
	}
	return s
}

const (
	pprofPrefix = "/debug/pprof/"
	pprofLabel  = "/debug/pprof"
	otherLabel  = "other" // of what the mux answers by itself
)

// handle serves a pattern and counts its answers under a label.
func (s *Server) handle(pattern, label string, f http.HandlerFunc) {
	s.mux.HandleFunc(pattern, f)
	s.labels[pattern] = label
	s.stats.requests.WithLabelValues(label, strconv.Itoa(http.StatusOK)) // there from the start
}

// Handler returns what the Server answers with, without listening: no TLS, no
// authentication, no limit of connections.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	c := &codeWriter{ResponseWriter: w, code: http.StatusOK}
	if r.ContentLength != 0 {
		refuseBody(c)
	} else {
		s.mux.ServeHTTP(c, r)
	}
	label := s.labels[r.Pattern]
	if label == "" {
		label = otherLabel
	}
	s.stats.requests.WithLabelValues(label, strconv.Itoa(c.code)).Inc()
}

// refuseBody answers without reading the body. net/http would read up to 256 KiB of
// it after the handler, at the client's pace; so no more can be read.
func refuseBody(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) // a recorder has none
	writeText(w, http.StatusRequestEntityTooLarge, "no path takes a body\n")
}

// writeText answers with a short text.
func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text)) //nolint:gosec // plain text under nosniff; an error says that the client went away
}

// codeWriter remembers the status code.
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

// newStats registers with reg, which may be nil; open returns the number of open
// connections. It panics if reg has such metrics already.
func newStats(reg prometheus.Registerer, open func() float64) *stats {
	s := &stats{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warpgauge_http_requests_total",
			Help: "HTTP requests answered, by path and status code. Requests that fail authentication are not counted.",
		}, []string{"path", "code"}),
		scrape: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "warpgauge_scrape_duration_seconds",
			Help: "Time from the start of a scrape's handler until its page was handed to the network, rendering included where the page was not rendered yet.",
			Buckets: []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01,
				.025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}),
		aborted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "warpgauge_scrapes_aborted_total",
			Help: "Scrapes whose page could not be sent whole: the client went away or read too slowly.",
		}),
		evicted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "warpgauge_http_connections_evicted_total",
			Help: "Connections closed in favour of a new one because the limit of connections was reached.",
		}),
	}
	s.requests.WithLabelValues(otherLabel, strconv.Itoa(http.StatusNotFound))
	if reg != nil {
		reg.MustRegister(s.requests, s.scrape, s.aborted, s.evicted,
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "warpgauge_http_connections",
				Help: "Open HTTP connections.",
			}, open))
	}
	return s
}
