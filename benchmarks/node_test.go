// Package benchmarks measures the whole way of a value, from simulated devices
// to bytes on a socket. What one package does alone is measured there; the
// README here says where, and holds results.
package benchmarks

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"warpgauge/collectors/fake"
	"warpgauge/etc"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/accumulate"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/selfmetrics"
	"warpgauge/pkg/server"
	"warpgauge/pkg/session"
	"warpgauge/pkg/supervisor"
)

// node is an exporter of simulated GPUs in this process, as the command wires it.
type node struct {
	sampler  *supervisor.Supervisor
	renderer *exposition.Renderer
	url      string
}

// defaultCounters is the CSV that the binary carries.
func defaultCounters(b *testing.B) field.List {
	list, problems, err := field.Parse(bytes.NewReader(etc.DefaultCounters()), field.ParseOptions{File: "default-counters.csv"})
	if err != nil {
		b.Fatal(err, problems)
	}
	return list
}

// startNode runs an exporter until the benchmark ends. A spec can script faults.
func startNode(b *testing.B, o fake.Options, list field.List, interval time.Duration) *node {
	b.Helper()
	factory, err := fake.Factory(o)
	must(b, err)
	registry := selfmetrics.NewRegistry("benchmark", "")
	n := &node{sampler: supervisor.New(supervisor.Wanted{List: list}, supervisor.Options{
		Name: fake.Name, Open: factory, Session: session.Options{Interval: interval}, StopTimeout: 100 * time.Millisecond,
	})}
	registry.MustRegister(n.sampler)
	store := accumulate.New(accumulate.Options{})
	registry.MustRegister(store)
	self := selfmetrics.New(registry, selfmetrics.Options{})
	n.renderer = exposition.New(n.sampler.Board(), exposition.Options{Hostname: "node", Store: store, Self: self})
	address := freeAddress(b)
	srv := server.New(n.renderer, server.Options{Addresses: []string{address}, MaxConnections: 1024})

	ctx, cancel := context.WithCancel(b.Context())
	must(b, srv.Listen(ctx))
	n.url = fmt.Sprintf("http://%s/metrics", address)
	runs := []func(context.Context) error{n.sampler.Run, n.renderer.Run, self.Run, srv.Run}
	ended := make(chan error, len(runs))
	for _, run := range runs {
		go func() { ended <- run(ctx) }()
	}
	b.Cleanup(func() {
		cancel()
		for range runs {
			<-ended // a hung simulated GPU is abandoned with an error
		}
	})
	n.awaitRows(b)
	return n
}

// awaitRows waits until every source has a row, or hangs.
func (n *node) awaitRows(b *testing.B) {
	for end := time.Now().Add(eventually.Patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		v := n.sampler.Board().Load()
		missing := 0
		for _, s := range v.Sources {
			if s.Ring.Head() == 0 {
				missing++
			}
		}
		if len(v.Sources) > 0 && missing == 0 {
			return
		}
	}
	b.Fatal("no rows within 30 s")
}

// client keeps conns connections open, as so many scrapers would.
func client(conns int) *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: conns, MaxConnsPerHost: conns, DisableCompression: true}}
}

func residentBytes(b *testing.B, pid int) float64 {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		b.Skipf("no /proc to read resident memory from: %v", err)
	}
	var size, resident float64
	if _, err := fmt.Sscan(string(raw), &size, &resident); err != nil {
		b.Fatal(err)
	}
	return resident * float64(os.Getpagesize())
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
