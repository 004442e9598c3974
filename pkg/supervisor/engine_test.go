package supervisor

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/session/sessiontest"
	"warpgauge/pkg/view"
)

// node is two supervisors with a failover between them, wired as the exporter does.
type node struct {
	t          *testing.T
	dcgm, nvml *sessiontest.Library
	first      *Supervisor
	second     *Supervisor
	failover   *Failover

	mu   sync.Mutex
	page []*view.Source
}

func (n *node) Publish(sources []*view.Source) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.page = sources
}

func (n *node) Standby(rest bool) { n.second.Change(func(w *Wanted) { w.Standby = rest }) }

func (n *node) TakenOver(string) {}

func startNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, dcgm: sessiontest.New(t, "a", "b"), nvml: sessiontest.New(t, "a", "b")}
	n.failover = NewFailover(FailoverOptions{
		Node: n, Primary: "dcgm", Secondary: "nvml", Logger: zap.NewNop(),
	})
	build := func(name string, l *sessiontest.Library, page Page) *Supervisor {
		return New(Wanted{List: list(1)}, Options{Name: name, Open: l.Open, Page: page, RestartMax: 5 * time.Second})
	}
	primary, secondary := n.failover.Ends()
	n.first, n.second = build("dcgm", n.dcgm, primary), build("nvml", n.nvml, secondary)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{n.failover.Run, n.first.Run, n.second.Run} {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	t.Cleanup(func() { cancel(); wg.Wait() })
	return n
}

// watch checks every few milliseconds that each GPU is on the page once, with a row
// younger than the limit, and that no counter goes back.
func (n *node) watch(limit time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(n.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		last := map[string]float64{}
		for ctx.Err() == nil && !n.t.Failed() {
			n.mu.Lock()
			page := n.page
			n.mu.Unlock()
			var row ring.Row
			var ids []string
			for _, s := range page {
				if !latest(s, &row) {
					continue
				}
				for i, d := range s.Devices {
					ids = append(ids, d.ID)
					if age := time.Duration(time.Now().UnixNano() - row.Stamps[i]); age > limit {
						n.t.Errorf("after %v the row of %s from %s is %v old", time.Since(bubbleStart), d.ID, s.Collector, age)
					}
					if v := row.Cells[0]; v < last[d.ID]-float64(2*time.Second) {
						n.t.Errorf("after %v the counter of %s went back by %v", time.Since(bubbleStart), d.ID, time.Duration(last[d.ID]-v))
					} else {
						last[d.ID] = v
					}
				}
			}
			if slices.Sort(ids); !slices.Equal(ids, []string{"a", "b"}) {
				n.t.Errorf("after %v the page has %v with rows, want each GPU once", time.Since(bubbleStart), ids)
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	return func() { cancel(); wg.Wait() }
}

func (n *node) want(serving string, nvmlHeld bool) {
	n.t.Helper()
	synctest.Wait()
	if got := n.failover.Serving(); got != serving || n.nvml.Held() != nvmlHeld {
		n.t.Errorf("after %v %q serves, NVML is open: %v, want %q and %v", time.Since(bubbleStart), got, n.nvml.Held(), serving, nvmlHeld)
	}
}

// What happens to DCGM, with NVML on standby: no GPU is ever off the page or on it
// twice, and rows are no older than patience and the time to take over.
func TestFailoverOfSupervisors(t *testing.T) {
	f := func(name string, limit time.Duration, ends func(n *node), begins func(n *node)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := startNode(t)
				pass(15 * time.Second)
				n.want("dcgm", false)
				stop := n.watch(limit)
				ends(n)
				pass(12 * time.Second)
				n.want("nvml", true)
				begins(n)
				pass(time.Minute)
				n.want("dcgm", false)
				stop()
			})
		})
	}
	f("the engine stalls", 8*time.Second,
		func(n *node) { n.dcgm.Fail(collector.ErrStalled) }, func(n *node) { n.dcgm.Fail(nil) })
	f("the engine is gone", 8*time.Second,
		func(n *node) {
			n.dcgm.Set(func() { n.dcgm.OpenErr = func(field.List) error { return errors.New("connection refused") } })
			n.dcgm.Fail(collector.ErrOutdated)
		},
		func(n *node) { n.dcgm.Fail(nil); n.dcgm.Set(func() { n.dcgm.OpenErr = nil }) })
	f("calls hang", 8*time.Second,
		func(n *node) {
			n.dcgm.Set(func() { n.dcgm.Hang["a"], n.dcgm.Hang["b"] = make(chan struct{}), make(chan struct{}) })
		},
		func(n *node) {
			n.dcgm.Set(func() { close(n.dcgm.Hang["a"]); close(n.dcgm.Hang["b"]); clear(n.dcgm.Hang) })
		})
	f("DCGM is released", 3*time.Second,
		func(n *node) {
			if err := n.first.Want(n.t.Context(), release); err != nil {
				n.t.Error(err)
			}
			if n.dcgm.Held() {
				n.t.Error("DCGM is still held")
			}
		},
		func(n *node) { n.first.Change(resume) })
}
