package server

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// stats are the server's own metrics. Children are made once, so that counting
// a request allocates nothing and every series is there from the start.
type stats struct {
	metrics, health, livez, readyz, reload, release, resume, profiling, pprof, index, other *pathStats

	scrape   prometheus.Histogram
	aborted  prometheus.Counter
	evicted  prometheus.Counter
	rejected prometheus.Counter
}

// newStats registers with reg, which may be nil; open tells the number of open
// connections. It panics where reg has such metrics already.
func newStats(reg prometheus.Registerer, open func() float64) *stats {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "warpgauge_http_requests_total",
		Help: "HTTP requests answered, by path and status code. Requests that fail authentication are not counted.",
	}, []string{"path", "code"})
	path := func(path string, codes ...int) *pathStats { return newPathStats(requests, path, codes) }
	s := &stats{
		metrics: path("/metrics", http.StatusOK, http.StatusServiceUnavailable),
		health:  path("/health", http.StatusOK),
		livez:   path("/livez", http.StatusOK),
		readyz:  path("/readyz", http.StatusOK, http.StatusServiceUnavailable),
		reload: path("/-/reload", http.StatusOK, http.StatusForbidden,
			http.StatusMethodNotAllowed, http.StatusInternalServerError),
		release:   path("/-/release", http.StatusOK, http.StatusForbidden, http.StatusInternalServerError),
		resume:    path("/-/resume", http.StatusOK, http.StatusForbidden),
		profiling: path("/-/profiling", http.StatusOK, http.StatusForbidden, http.StatusInternalServerError),
		pprof:     path("/debug/pprof", http.StatusOK),
		index:     path("/", http.StatusOK),
		other:     path("other", http.StatusNotFound),

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
		rejected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "warpgauge_http_connections_rejected_total",
			Help: "New connections closed at once because the limit was reached and all others were being served.",
		}),
	}
	if reg != nil {
		reg.MustRegister(requests, s.scrape, s.aborted, s.evicted, s.rejected,
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "warpgauge_http_connections",
				Help: "Open HTTP connections.",
			}, open))
	}
	return s
}

// pathStats counts the answers of one path.
type pathStats struct {
	vec   *prometheus.CounterVec
	path  string
	codes []codeCounter
}

type codeCounter struct {
	code int
	n    prometheus.Counter
}

func newPathStats(vec *prometheus.CounterVec, path string, codes []int) *pathStats {
	p := &pathStats{vec: vec, path: path}
	for _, c := range codes {
		p.codes = append(p.codes, codeCounter{c, vec.WithLabelValues(path, strconv.Itoa(c))})
	}
	return p
}

func (p *pathStats) count(code int) {
	for i := range p.codes {
		if p.codes[i].code == code {
			p.codes[i].n.Inc()
			return
		}
	}
	p.vec.WithLabelValues(p.path, strconv.Itoa(code)).Inc()
}
