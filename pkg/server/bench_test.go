package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/netutil"

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
	body := s.pages.Page(exposition.Text, false)
	contentType := []string{exposition.Text.ContentType()}
	length := []string{strconv.Itoa(len(body))}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h["Content-Type"] = contentType
		h["Content-Length"] = length
		h["Vary"] = []string{"Accept, Accept-Encoding"}
		h["X-Content-Type-Options"] = []string{"nosniff"}
		w.Write(body)
	})
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
	serve(tb, ours, netutil.LimitListener(l, s.conns.slots()))

	l2, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	rival := s.httpServer(tb.Context())
	rival.Handler, rival.ConnState = bare(s), nil
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
