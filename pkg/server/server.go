package server

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"warpgauge/pkg/exposition"
)

// Pages is where pages come from: *exposition.Renderer. Page returns the newest
// one, never nil; it is released exactly once. Neither method waits for anything.
type Pages interface {
	Negotiate(accept string) exposition.Format
	Page(f exposition.Format, gzip bool) *exposition.Page
}

var _ Pages = (*exposition.Renderer)(nil)

// Server serves pages over HTTP.
type Server struct {
	pages Pages
	o     Options
	log   *zap.Logger
	stats *stats
	conns *conns

	scrape    scraper
	index     index
	reloading chan struct{} // holds one token while /-/reload is at work
	draining  atomic.Bool

	mu        sync.Mutex
	listeners []*listener
	tls       bool
}

// New returns a Server that does not listen yet. It panics where o.Registerer
// has the metrics of another Server.
func New(pages Pages, o Options) *Server {
	o.setDefaults()
	s := &Server{
		pages:     pages,
		o:         o,
		log:       o.Logger.Named("server"),
		scrape:    newScraper(o.MaxConcurrentScrapes),
		index:     newIndex(o.Version, o.Pprof),
		reloading: make(chan struct{}, 1),
	}
	s.stats = newStats(o.Registerer, func() float64 { return float64(s.conns.len()) })
	s.conns = newConns(o.MaxConnections, evictionGrace, s.stats)
	return s
}

// Handler returns what the Server answers with, without listening: no TLS, no
// authentication, no limit of connections.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// nosniff and the like are header values that all answers share; net/http and
// exporter-toolkit replace values and never write into them.
var nosniff = []string{"nosniff"}

// serve is compared to a bare handler in the benchmark: paths are compared
// rather than matched, and what it counts and notes allocates nothing.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.conns.serve(connOf(r))
	boundBody(w, r)
	w.Header()["X-Content-Type-Options"] = nosniff

	switch path := r.URL.Path; path {
	case "/metrics":
		s.stats.metrics.count(s.serveMetrics(w, r))
	case "/health":
		s.stats.health.count(s.serveHealth(w, r))
	case "/livez":
		s.stats.livez.count(serveLivez(w, r))
	case "/readyz":
		s.stats.readyz.count(s.serveReadyz(w, r))
	case "/-/reload":
		s.stats.reload.count(s.serveReload(w, r))
	case "/-/release":
		s.stats.release.count(s.serveRelease(w, r))
	case "/-/resume":
		s.stats.resume.count(s.serveResume(w, r))
	case "/-/profiling/pause":
		s.stats.profiling.count(s.servePause(w, r))
	case "/-/profiling/resume":
		s.stats.profiling.count(s.serveUnpause(w, r))
	case "/":
		s.stats.index.count(s.index.serve(w, r))
	default:
		if s.o.Pprof && strings.HasPrefix(path, pprofPrefix) {
			s.stats.pprof.count(servePprof(w, r))
			return
		}
		s.stats.other.count(writeText(w, r, http.StatusNotFound, "404 page not found\n"))
	}
}

// writeText answers with a short text and returns the code.
func writeText(w http.ResponseWriter, r *http.Request, code int, text string) int {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	if r.Method != http.MethodHead {
		_, _ = w.Write([]byte(text)) //nolint:gosec // plain text under nosniff; an error says that the client went away
	}
	return code
}
