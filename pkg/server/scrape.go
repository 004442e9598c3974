package server

import (
	"container/list"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"warpgauge/pkg/exposition"
)

// serveMetrics sends the newest page.
func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	if n := s.scrapes.Add(1); s.o.MaxConcurrentScrapes > 0 && n > int64(s.o.MaxConcurrentScrapes) {
		s.scrapes.Add(-1)
		w.Header().Set("Retry-After", "1")
		writeText(w, http.StatusServiceUnavailable, "too many scrapes at a time\n")
		return
	}
	defer s.scrapes.Add(-1)
	start := time.Now()
	f := exposition.Negotiate(headerList(r.Header, "Accept"))
	gzip := exposition.AcceptsGzip(headerList(r.Header, "Accept-Encoding"))
	page := s.pages.Page(f, gzip)

	h := w.Header()
	h.Set("Content-Type", f.ContentType())
	h.Set("Content-Length", strconv.Itoa(len(page)))
	h.Set("Vary", "Accept, Accept-Encoding")
	if gzip {
		h.Set("Content-Encoding", "gzip")
	}
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		end := s.sending.begin(page, func() {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0)) // a recorder has none
		})
		_, err := w.Write(page) //nolint:gosec // nothing of the request is in the page
		end()
		if err != nil {
			s.stats.aborted.Inc()
		}
	}
	s.stats.scrape.Observe(time.Since(start).Seconds())
}

// headerList joins the lines of a header that may be sent in several.
func headerList(h http.Header, name string) string { return strings.Join(h[name], ",") }

// maxSendingBytes bounds the memory of the pages that are being sent. Clients that
// read slowly hold a page each, and the pages of 200 GPUs have 6 MB.
const maxSendingBytes = 64 << 20

// sending keeps account of the pages that are being sent. When they take too much
// memory together, the scrapes that have taken longest are cut off. A page that
// many clients read counts once.
type sending struct {
	mu      sync.Mutex
	bytes   int
	readers map[*byte]int // by the first byte of a page
	scrapes list.List     // of scrape, the one that began first is first
}

type scrape struct {
	page []byte
	cut  func()
}

// begin notes that page is being sent, until end. It may call cut in between.
func (s *sending) begin(page []byte, cut func()) (end func()) {
	if len(page) == 0 {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readers == nil {
		s.readers = map[*byte]int{}
	}
	if s.readers[&page[0]]++; s.readers[&page[0]] == 1 {
		s.bytes += len(page)
	}
	e := s.scrapes.PushBack(scrape{page, cut})
	for first := s.scrapes.Front(); s.bytes > maxSendingBytes && first != e; first = s.scrapes.Front() {
		s.removeLocked(first).cut()
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.removeLocked(e)
	}
}

// removeLocked takes a scrape out, unless it was cut off before.
func (s *sending) removeLocked(e *list.Element) scrape {
	before := s.scrapes.Len()
	sc, _ := s.scrapes.Remove(e).(scrape)
	if s.scrapes.Len() == before {
		return sc
	}
	first := &sc.page[0]
	if s.readers[first]--; s.readers[first] == 0 {
		delete(s.readers, first)
		s.bytes -= len(sc.page)
	}
	return sc
}
