package server

import (
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"warpgauge/pkg/exposition"
)

// Header values of /metrics, shared by all answers like nosniff.
var (
	vary      = []string{"Accept, Accept-Encoding"}
	encodings = []string{"gzip"}
)

const formats = int(exposition.OpenMetrics001) + 1 // the last

// scraper is what answers of /metrics share.
type scraper struct {
	max     int64         // scrapes at a time; 0 means no limit
	running *atomic.Int64 // scrapes in the handler
	types   [formats][]string
	lengths *[formats][2]lengthHeader
}

func newScraper(limit int) scraper {
	s := scraper{max: int64(limit), running: new(atomic.Int64), lengths: new([formats][2]lengthHeader)}
	for f := range exposition.Format(formats) {
		s.types[f] = []string{f.ContentType()}
	}
	return s
}

// serveMetrics lends the newest page for as long as it takes to send it.
func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) int {
	if !s.scrape.enter() {
		w.Header().Set("Retry-After", "1")
		return writeText(w, r, http.StatusServiceUnavailable, "too many scrapes at a time\n")
	}
	defer s.scrape.leave()
	start := time.Now()
	f := s.pages.Negotiate(headerList(r.Header, "Accept"))
	gzip := exposition.AcceptsGzip(headerList(r.Header, "Accept-Encoding"))
	page := s.pages.Page(f, gzip)
	defer page.Release()

	body := page.Bytes()
	s.scrape.setHeader(w.Header(), f, gzip, len(body))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		if _, err := w.Write(body); err != nil { //nolint:gosec // nothing of the request is in the page
			s.stats.aborted.Inc()
		}
	}
	s.stats.scrape.Observe(time.Since(start).Seconds())
	return http.StatusOK
}

func (s *scraper) enter() bool {
	if n := s.running.Add(1); s.max > 0 && n > s.max {
		s.running.Add(-1)
		return false
	}
	return true
}

func (s *scraper) leave() { s.running.Add(-1) }

// setHeader assigns values made beforehand: Header.Set would make a new slice
// for each.
func (s *scraper) setHeader(h http.Header, f exposition.Format, gzip bool, size int) {
	compressed := 0
	if gzip {
		compressed = 1
		h["Content-Encoding"] = encodings
	}
	h["Content-Type"] = s.types[f]
	h["Vary"] = vary
	h["Content-Length"] = s.lengths[f][compressed].value(size)
}

// lengthHeader keeps the last Content-Length of one kind of page. It changes
// when the page does, so that scrapes between ticks find theirs ready.
type lengthHeader struct{ last atomic.Pointer[length] }

type length struct {
	n     int
	value []string
}

func (h *lengthHeader) value(n int) []string {
	if l := h.last.Load(); l != nil && l.n == n {
		return l.value
	}
	l := &length{n, []string{strconv.Itoa(n)}}
	h.last.Store(l)
	return l.value
}

// headerList joins the lines of a header that may be sent in several.
func headerList(h http.Header, name string) string {
	v := h[name]
	if len(v) == 1 {
		return v[0]
	}
	return strings.Join(v, ",")
}
