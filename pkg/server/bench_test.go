package server

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"warpgauge/pkg/exposition"
)

// page of about the size that 8 GPUs with the default fields have.
func benchPage() *exposition.Renderer {
	var b strings.Builder
	for f := range 26 {
		fmt.Fprintf(&b, "# HELP DCGM_FI_DEV_FIELD_%d A field of a GPU.\n# TYPE DCGM_FI_DEV_FIELD_%d gauge\n", f, f)
		for g := range 8 {
			fmt.Fprintf(&b, "DCGM_FI_DEV_FIELD_%d{gpu=\"%d\",UUID=\"GPU-00000000-0000-0000-0000-00000000000%d\",pci_bus_id=\"00000000:%d0:00.0\",device=\"nvidia%d\",modelName=\"NVIDIA H100 80GB HBM3\",hostname=\"node\"} %d\n", f, g, g, g, g, f*g)
		}
	}
	return pagesOf(b.String())
}

// bare is the rival: what remains of the server when everything but the page
// and its headers is left out.
func bare(s *Server) http.Handler {
	page := s.pages.Page(exposition.Text, false)
	body := bytes.Clone(page.Bytes())
	page.Release()
	contentType := []string{exposition.Text.ContentType()}
	length := []string{strconv.Itoa(len(body))}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h["Content-Type"] = contentType
		h["Content-Length"] = length
		h["Vary"] = vary
		h["X-Content-Type-Options"] = nosniff
		w.Write(body)
	})
}

// sink is a ResponseWriter that is used again and allocates nothing.
type sink struct {
	h http.Header
	n int
}

func (s *sink) Header() http.Header         { return s.h }
func (s *sink) WriteHeader(int)             {}
func (s *sink) Write(p []byte) (int, error) { s.n += len(p); return len(p), nil }

func TestScrapeOfAnUnchangedPageAllocatesNothing(t *testing.T) {
	s := New(benchPage(), Options{MaxConcurrentScrapes: 4})
	r, err := http.NewRequest(http.MethodGet, "http://x/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &sink{h: http.Header{}}
	for _, encoding := range []string{"", "gzip"} {
		for _, accept := range []string{"", "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"} {
			r.Header["Accept"] = []string{accept}
			r.Header["Accept-Encoding"] = []string{encoding}
			n := testing.AllocsPerRun(100, func() {
				clear(w.h)
				s.serve(w, r)
			})
			if n != 0 {
				t.Errorf("Accept %q, Accept-Encoding %q: %v allocations per scrape, want 0", accept, encoding, n)
			}
		}
	}
	if w.n == 0 {
		t.Error("nothing was served")
	}
}

// Over a connection, with all that the server hooks into net/http.
func TestScrapeAllocatesAsABareHandlerDoes(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	p := newPair(t)
	const rounds = 10
	ours, rival := math.Inf(1), math.Inf(-1)
	for range rounds {
		ours, rival = min(ours, mallocs(t, p.ours)), max(rival, mallocs(t, p.bare))
	}
	// net/http reads ahead while a handler runs, and allocates an error for it, unless
	// the next request came first. That is up to the scheduler and no whole number.
	if ours > rival+0.5 {
		t.Errorf("%.2f allocations per scrape at the least, a bare handler has %.2f at the most", ours, rival)
	}
}

// mallocs returns how many allocations a scrape costs, those of all goroutines.
// testing.AllocsPerRun cuts the fraction off: 16.99 would be one less than 17.00.
func mallocs(t *testing.T, c *scrapeConn) float64 {
	t.Helper()
	const scrapes = 200
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range scrapes {
		if err := c.scrape(); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / scrapes
}

// pair is our server and a bare one, with a connection to each.
type pair struct {
	ours, bare               *scrapeConn
	oursAddress, bareAddress string
}

func newPair(tb testing.TB) *pair {
	tb.Helper()
	s := New(benchPage(), Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	ours := s.httpServer(tb.Context())
	wrapped := &listener{Listener: l, conns: s.conns}
	serve(tb, ours, wrapped)

	l2, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	rival := s.httpServer(tb.Context())
	rival.Handler, rival.ConnContext, rival.ConnState = bare(s), nil, nil
	serve(tb, rival, l2)

	p := &pair{oursAddress: l.Addr().String(), bareAddress: l2.Addr().String()}
	p.ours, p.bare = newScrapeConn(tb, p.oursAddress), newScrapeConn(tb, p.bareAddress)
	if p.ours.size != p.bare.size {
		tb.Fatalf("answers have %d and %d bytes, they should be the same", p.ours.size, p.bare.size)
	}
	return p
}

func serve(tb testing.TB, srv *http.Server, l net.Listener) {
	tb.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		srv.Serve(l)
	}()
	tb.Cleanup(func() {
		srv.Close()
		<-done
	})
}

// scrapeConn scrapes over one connection with as little client as can be, so
// that the servers are compared and not clients.
type scrapeConn struct {
	c    net.Conn
	buf  []byte
	size int // of the whole answer: always the same, the date has a fixed length
}

var scrapeRequest = []byte("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: text/plain\r\n\r\n")

func newScrapeConn(tb testing.TB, address string) *scrapeConn {
	tb.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	s := &scrapeConn{c: c}
	if _, err := c.Write(scrapeRequest); err != nil {
		tb.Fatal(err)
	}
	head := &countReader{r: c}
	b := bufio.NewReader(head)
	resp, err := http.ReadResponse(b, nil)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		tb.Fatalf("scrape %s: %s", address, resp.Status)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		tb.Fatal(err)
	}
	s.size = head.n
	s.buf = make([]byte, s.size)
	return s
}

type countReader struct {
	r io.Reader
	n int
}

func (c *countReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

func (s *scrapeConn) scrape() error {
	if _, err := s.c.Write(scrapeRequest); err != nil {
		return err
	}
	_, err := io.ReadFull(s.c, s.buf)
	return err
}

// BenchmarkScrape compares the throughput of our server with a bare handler's.
// Both are measured in turn within each iteration, so that what else the
// machine does meets both alike. x-bare is our throughput over the bare one's.
func BenchmarkScrape(b *testing.B) {
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprintf("conns=%d", n), func(b *testing.B) { benchmarkScrape(b, n) })
	}
}

func benchmarkScrape(b *testing.B, conns int) {
	p := newPair(b)
	ours, bare := []*scrapeConn{p.ours}, []*scrapeConn{p.bare}
	for len(ours) < conns {
		ours = append(ours, newScrapeConn(b, p.oursAddress))
		bare = append(bare, newScrapeConn(b, p.bareAddress))
	}
	const rounds = 20 // scrapes per connection before the other server's turn
	var oursTime, bareTime time.Duration
	b.SetBytes(2 * rounds * int64(conns*p.ours.size)) // both servers
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if i++; i%2 == 0 {
			oursTime += volley(b, ours, rounds)
			bareTime += volley(b, bare, rounds)
		} else {
			bareTime += volley(b, bare, rounds)
			oursTime += volley(b, ours, rounds)
		}
	}
	scrapes := float64(i * rounds * conns)
	b.ReportMetric(float64(oursTime.Nanoseconds())/scrapes, "ours-ns/scrape")
	b.ReportMetric(float64(bareTime.Nanoseconds())/scrapes, "bare-ns/scrape")
	b.ReportMetric(bareTime.Seconds()/oursTime.Seconds(), "x-bare")
}

// volley scrapes over all connections at the same time.
func volley(b *testing.B, conns []*scrapeConn, rounds int) time.Duration {
	b.Helper()
	begin := time.Now()
	var wg sync.WaitGroup
	for _, c := range conns {
		wg.Go(func() {
			for range rounds {
				if err := c.scrape(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(begin)
}
