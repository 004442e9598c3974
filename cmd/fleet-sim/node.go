package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/collectors/fake"
	"warpgauge/extensions/live/page"
	"warpgauge/pkg/accumulate"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/owner"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/selfmetrics"
	"warpgauge/pkg/server"
	"warpgauge/pkg/session"
	"warpgauge/pkg/supervisor"
	"warpgauge/pkg/view"
)

// node is one exporter, from simulated GPUs to the page.
type node struct {
	host, profile string

	sampler  *supervisor.Supervisor
	owners   *owner.Keeper // nil without pods
	board    *view.Board
	pods     *pods
	self     *selfmetrics.Page
	renderer *exposition.Renderer
	handler  http.Handler
}

// selfInterval is how often a node updates its own metrics. Each update reads /proc, which costs more than the rest
// of a node.
const selfInterval = 15 * time.Second

func newNode(o options, i int, loads *fake.Curves, list field.List) (*node, error) {
	var merger view.Merger
	n := &node{board: merger.Board(), host: fmt.Sprintf("sim-%05d", i), profile: o.profiles[i%len(o.profiles)]}
	gpus, err := fake.Factory(fake.Options{
		Profile: n.profile, Devices: o.devices, Spec: o.spec, Seed: uint64(i) + 1, Curves: loads,
	})
	if err != nil {
		return nil, fmt.Errorf("simulate node %d: %w", i, err)
	}
	registry := selfmetrics.NewRegistry("simulated", "")
	n.sampler = supervisor.New(supervisor.Wanted{List: list}, supervisor.Options{
		Name: fake.Name, Open: gpus, Page: merger.Part(),
		Session: session.Options{Interval: o.interval, SlowInterval: max(o.interval, 30*time.Second)},
	})
	store := accumulate.New(accumulate.Options{Rows: rows.New(n.board, nil)})
	registry.MustRegister(n.sampler, store)
	stale := max(3*o.interval, 30*time.Second)
	pages := exposition.Options{Hostname: n.host, StaleAfter: stale, Store: store, Registerer: registry}
	if o.pods.perDevice > 0 {
		n.addOwners(o.pods, i, stale, registry)
		pages.Owners = n.owners
	}
	n.self = selfmetrics.New(registry, selfmetrics.Options{Lean: true, Interval: selfInterval, Registerer: registry})
	pages.Self = n.self
	n.renderer = exposition.New(n.board, pages)
	n.handler = server.New(n.renderer, server.Options{Routes: server.Page(page.Handler(page.Options{Version: "simulated"})), Registerer: registry, Status: n.status}).Handler()
	return n, nil
}

// addOwners adds a scripted kubelet that assigns the node's GPUs to pods.
func (n *node) addOwners(o podOptions, i int, stale time.Duration, reg prometheus.Registerer) {
	n.pods = newPods(o, n.host, i, n.board)
	n.owners = owner.New(n.board, owner.Options{
		Allocations: n.pods, Virtual: o.perDevice > 1, StaleAfter: stale, Registerer: reg,
	})
}

func (n *node) status() server.Status {
	s := server.Status{Available: true}
	if c := n.sampler.Status(); !c.Up {
		s.NotReady = append(s.NotReady, c.Reason)
	}
	return s
}

// run runs the node until ctx ends.
func (n *node) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	stage := func(run func(context.Context) error) {
		wg.Go(func() { _ = run(ctx) }) // a simulated node's end needs no report
	}
	stage(n.sampler.Run)
	stage(n.renderer.Run)
	if n.owners != nil {
		stage(n.owners.Run)
		wg.Go(func() { n.pods.run(ctx, n.owners.Notify) })
	}
	stage(n.self.Run)
}
