package benchmarks

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"warpgauge/internal/testkit"
)

// BenchmarkScrape measures requests over open loopback connections to the exporter, without new rows, and to a plain
// net/http handler that writes the same bytes. The servers alternate within each iteration, so that a drifting machine
// speed affects both. "ratio" is our throughput divided by the plain handler's. "cpu-ratio" is the plain handler's CPU
// time, of client and server, divided by ours. 1 means equal. cpu-ratio is steadier on a shared machine.
func BenchmarkScrape(b *testing.B) {
	// One tick per hour: one row, then a page on which only our own metrics change.
	n := startNode(b, "", time.Hour)
	page := n.wholePage(b)
	bare := bareHandler(b, page)
	for _, conns := range []int{1, 64} {
		b.Run(fmt.Sprintf("conns=%d", conns), func(b *testing.B) {
			c := client(conns)
			const batch = 2000
			load(b, c, bare, conns, batch)
			load(b, c, n.url, conns, batch)
			var ours, theirs, oursCPU, theirsCPU time.Duration
			for b.Loop() {
				start := cpuTime(b)
				theirs += load(b, c, bare, conns, batch)
				middle := cpuTime(b)
				ours += load(b, c, n.url, conns, batch)
				theirsCPU, oursCPU = theirsCPU+middle-start, oursCPU+cpuTime(b)-middle
			}
			total := float64(b.N * batch)
			b.ReportMetric(total/ours.Seconds(), "scrapes/s")
			b.ReportMetric(total/theirs.Seconds(), "bare/s")
			b.ReportMetric(theirs.Seconds()/ours.Seconds(), "ratio")
			b.ReportMetric(theirsCPU.Seconds()/oursCPU.Seconds(), "cpu-ratio")
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(len(page)), "page-B")
		})
	}
}

// wholePage returns a page with all series of our own metrics: the first pages lack series of devices and of requests.
func (n *node) wholePage(b *testing.B) []byte {
	lines := func(page []byte) int { return bytes.Count(page, []byte("\n")) }
	page := awaitGPUs(b, n.url, 8)
	for range 10 {
		time.Sleep(1500 * time.Millisecond) // own metrics are gathered a second after a scrape
		next := awaitGPUs(b, n.url, 8)
		if lines(next) == lines(page) {
			return next
		}
		page = next
	}
	b.Fatal("the page does not stop growing")
	return nil
}

// client returns an HTTP client that keeps conns connections open, like as many scrapers.
func client(conns int) *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: conns, MaxConnsPerHost: conns, DisableCompression: true}}
}

// bareHandler serves page with the headers that the exporter sends.
func bareHandler(b *testing.B, page []byte) string {
	length := strconv.Itoa(len(page))
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		h.Set("Vary", "Accept, Accept-Encoding")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Length", length)
		w.Write(page)
	})}
	l := testkit.Get(net.Listen("tcp", "127.0.0.1:0"))(b)
	go srv.Serve(l)
	b.Cleanup(func() { srv.Close() })
	return "http://" + l.Addr().String() + "/metrics"
}

// load sends total requests over conns connections and returns how long it took.
func load(b *testing.B, c *http.Client, url string, conns, total int) time.Duration {
	var left atomic.Int64
	left.Store(int64(total))
	var wg sync.WaitGroup
	start := time.Now()
	for range conns {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := get(c, url); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}

func get(c *http.Client, url string) (int64, error) {
	resp, err := c.Get(url)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || n == 0) {
		err = fmt.Errorf("get %s: status %d, %d bytes", url, resp.StatusCode, n)
	}
	return n, err
}
