// Package benchmarks measures the path of a value from simulated devices to bytes on a socket. Benchmarks of single
// packages are in those packages; the README here lists them and holds results.
package benchmarks

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"warpgauge/collectors/fake"
	"warpgauge/etc"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/loopback"
	"warpgauge/internal/testkit/programtest"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/exporter/exportertest"
)

var must = testkit.Must

// node is an exporter of 8 simulated GPUs in this process, with the default list.
type node struct {
	*exporter.Pipeline
	url string
}

// startNode runs a node until the benchmark ends. script may contain faults.
func startNode(b *testing.B, script string, interval time.Duration) *node {
	b.Helper()
	spec, err := fake.ParseSpec(strings.NewReader(script))
	must(b, err)
	v := exporter.Vendor{Name: fake.Name, Simulated: true}
	v.Open = testkit.Get(fake.Factory(fake.Options{Profile: "dgx-h100", Spec: spec}))(b)
	address := freeAddress(b)
	simulated := exportertest.Node{Vendors: []exporter.Vendor{v}, CSV: string(etc.DefaultCounters()), Args: []string{
		"--enable-only=fake", "--address=" + address, fmt.Sprintf("--collect-interval=%d", interval.Milliseconds()), "--slow-interval=1h",
	}}
	n := &node{simulated.Pipeline(b), "http://" + address + "/metrics"}
	n.AddPages()
	srv := n.NewServer()
	ctx, cancel := context.WithCancel(b.Context())
	must(b, srv.Listen(ctx))
	stages := append(n.Stages(), exporter.Stage{Run: srv.Run})
	ended := make(chan error, len(stages))
	for _, s := range stages {
		go func() { ended <- s.Run(ctx) }()
	}
	b.Cleanup(func() {
		cancel()
		for range stages {
			<-ended // a hung simulated GPU is abandoned with an error
		}
	})
	awaitGPUs(b, n.url, 8)
	return n
}

func freeAddress(b *testing.B) string {
	b.Helper()
	port := testkit.Get(loopback.Reserve())(b)
	b.Cleanup(func() { _ = port.Close() })
	return port.Address()
}

// awaitGPUs waits until want GPUs have a temperature on the page, and returns the page.
func awaitGPUs(b *testing.B, url string, want int) []byte {
	b.Helper()
	for end := time.Now().Add(eventually.Patience); time.Now().Before(end); time.Sleep(500 * time.Microsecond) {
		resp, err := http.Get(url)
		if err != nil {
			continue // it does not listen yet
		}
		page, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err == nil && bytes.Count(page, []byte("\nDCGM_FI_DEV_GPU_TEMP{")) == want {
			return page
		}
	}
	b.Fatalf("no page of %d GPUs", want)
	return nil
}

// BenchmarkIdle measures the CPU time that an exporter of 8 simulated GPUs uses while it is not scraped.
func BenchmarkIdle(b *testing.B) {
	window := 10 * time.Second
	if testing.Short() { // to see that it still runs
		window = time.Second
	}
	for _, interval := range []time.Duration{10 * time.Millisecond, time.Second, time.Hour} {
		b.Run(fmt.Sprintf("interval=%v", interval), func(b *testing.B) {
			startNode(b, "", interval)
			time.Sleep(2 * time.Second) // the first layout and gatherings
			start, begin := cpuTime(b), time.Now()
			for b.Loop() {
				time.Sleep(window)
			}
			b.ReportMetric(float64((cpuTime(b)-start).Microseconds())/1000/time.Since(begin).Seconds(), "cpu-ms/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkHungGPU compares the scrape latency of two nodes. On the second, GPU 3 hangs for ever within its library
// call. Each iteration sends 200 scrapes to each node, alternating, while both sample at 100 ms. It reports latency
// quantiles of both nodes, and the age of the oldest value of the GPUs that do not hang.
func BenchmarkHungGPU(b *testing.B) {
	healthy := startNode(b, "", 100*time.Millisecond)
	hung := startNode(b, "faults:\n  - {at: 300ms, device: 3, kind: hang}\n", 100*time.Millisecond)
	c := client(2)
	time.Sleep(time.Second) // GPU 3 hangs now
	timed := func(n *node) time.Duration {
		start := time.Now()
		testkit.Get(get(c, n.url))(b)
		return time.Since(start)
	}
	var with, without []time.Duration
	var oldest time.Duration
	for b.Loop() {
		for range 200 {
			without, with = append(without, timed(healthy)), append(with, timed(hung))
			var ages []time.Duration
			for _, d := range hung.Engine.Status()[0].Devices {
				if d.Device.Parent == "" {
					ages = append(ages, time.Since(d.LastSample))
				}
			}
			slices.Sort(ages)
			oldest = max(oldest, ages[len(ages)-2])
		}
	}
	for name, all := range map[string][]time.Duration{"healthy": without, "hung": with} {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds()), "µs-p50-"+name)
		b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "µs-p99-"+name)
	}
	b.ReportMetric(float64(oldest.Milliseconds()), "ms-oldest-value-of-the-others")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkStart starts the real binary and measures the time from exec to the first page that holds the temperature of
// every GPU.
func BenchmarkStart(b *testing.B) {
	bin := filepath.Join(b.TempDir(), "warpgauge")
	if out, err := exec.CommandContext(b.Context(), "go", "build", "-o", bin, "warpgauge/cmd/warpgauge").CombinedOutput(); err != nil {
		b.Fatalf("go build: %v\n%s", err, out)
	}
	for _, gpus := range []int{8, 1000} {
		b.Run(fmt.Sprintf("gpus=%d", gpus), func(b *testing.B) {
			var first time.Duration
			for b.Loop() {
				address := freeAddress(b)
				start := time.Now()
				p := programtest.Start(b, bin, []string{"--enable-only=fake", fmt.Sprintf("--fake-devices=%d", gpus), "--address=" + address, "--no-hostname"}, programtest.Options{})
				awaitGPUs(b, "http://"+address+"/metrics", gpus)
				first += time.Since(start)
				p.Signal(b, os.Interrupt)
				<-p.Ended()
			}
			b.ReportMetric(float64(first.Microseconds())/1000/float64(b.N), "ms-to-complete-page")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// cpuTime returns the user and system time of this process.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
