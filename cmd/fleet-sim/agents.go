package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/etc"
	"warpgauge/extensions/remote/opamp"
	"warpgauge/extensions/remote/transport"
	"warpgauge/pkg/lists"
)

// agentOptions are the options of agents: nodes without GPUs, which show an OpAMP server the
// same as an exporter does.
type agentOptions struct {
	count    int
	server   string
	token    string // file
	interval time.Duration
	stall    string // a field: agents whose list has it report their GPUs as stalled
}

func (o *agentOptions) check() error {
	switch {
	case o.count < 0 || o.count > mostNodes:
		return fmt.Errorf("--agents is %d: write a number from 0 to %d", o.count, mostNodes)
	case o.count == 0:
		return nil
	case o.interval < 100*time.Millisecond:
		return fmt.Errorf("--agents-interval is %v: write at least 100ms", o.interval)
	}
	u, err := url.Parse(o.server)
	if err != nil || u.Host == "" {
		return fmt.Errorf("--agents-server is %q: write a URL such as http://127.0.0.1:4320", o.server)
	}
	return nil
}

// runAgents lets agents report until ctx ends, and serves their counts.
func runAgents(ctx context.Context, o options, out io.Writer) error {
	own, err := etc.Files().ReadFile(o.counters)
	if err != nil {
		return err
	}
	u, err := url.Parse(o.agents.server)
	if err != nil {
		return err
	}
	ignored := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ignored"}, []string{"offer"})
	all := make([]*agent, o.agents.count)
	for i := range all {
		if all[i], err = newAgent(o, i, u, own, ignored); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for _, n := range all {
		wg.Go(func() { _ = n.source.Run(ctx) }) // it ends with ctx
	}
	handler := func(string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(count(all)) // the client went away
		})
	}
	return serve(ctx, o.address, handler, out, fmt.Sprintf("%d agents of %s, their lists on http://%%s/agents", len(all), o.agents.server))
}

// agent is one of them.
type agent struct {
	source  *opamp.Agent
	stall   string
	changes atomic.Int64 // lists that were applied
	list    atomic.Pointer[lists.Offer]
	hash    atomic.Pointer[string]
	stalled atomic.Bool
	changed atomic.Pointer[chan struct{}]
}

// agentGPUs is how many GPUs an agent reports.
const agentGPUs = 8

func newAgent(o options, i int, server *url.URL, own []byte, ignored *prometheus.CounterVec) (*agent, error) {
	n := &agent{stall: o.agents.stall}
	n.serve(&lists.Offer{Origin: "file", Content: own})
	n.changes.Store(0)
	request := *server // a WebSocket begins with an HTTP request
	request.Scheme = strings.Replace(server.Scheme, "ws", "http", 1)
	var err error
	n.source, err = opamp.New(opamp.Options{
		URL: server, Transport: transport.New(&request, transport.Credentials{TokenFile: o.agents.token}), Interval: o.agents.interval, MaxBytes: 1 << 20,
		Identity: opamp.Identity{
			InstanceID: fmt.Sprintf("%08x-0000-7000-8000-%012x", o.seed, i+1), Version: "simulated", Hostname: fmt.Sprintf("%s%05d", o.host, i),
			Labels: map[string]string{"rack": fmt.Sprintf("r%d", i/32), "kind": "simulated"},
		},
		Node: n, Desk: n, Ignored: ignored, Logger: zap.NewNop(),
	})
	return n, err
}

// serve puts a list into service.
func (n *agent) serve(o *lists.Offer) {
	sum := sha256.Sum256(o.Content)
	hash := hex.EncodeToString(sum[:])
	n.list.Store(o)
	n.hash.Store(&hash)
	n.stalled.Store(n.stall != "" && bytes.Contains(o.Content, []byte(n.stall)))
	n.changes.Add(1)
	next := make(chan struct{})
	if former := n.changed.Swap(&next); former != nil {
		close(*former)
	}
}

// Effective implements opamp.Node.
func (n *agent) Effective() *lists.Offer { return n.list.Load() }

// Changed implements opamp.Node.
func (n *agent) Changed() <-chan struct{} { return *n.changed.Load() }

// Answered implements opamp.Desk, as the next two do.
func (*agent) Answered()         {}
func (*agent) Unreachable(error) {}
func (*agent) Refused(error)     {}

// Deliver implements opamp.Desk.
func (n *agent) Deliver(_ context.Context, o *lists.Offer) *lists.Outcome {
	n.serve(o)
	hash := *n.hash.Load()
	return &lists.Outcome{Answer: lists.Applied, Tried: hash, Running: hash}
}

// Facts implements opamp.Node.
func (n *agent) Facts() opamp.Facts {
	f := opamp.Facts{
		GPUs: agentGPUs, Models: []string{"NVIDIA H100 80GB HBM3 (simulated)"}, Drivers: []string{"0.0"}, SampleSeconds: 0.01, AbsentFields: 12, Series: 900,
		ListHash: *n.hash.Load(), Collectors: []opamp.Component{{Name: "fake", Healthy: true, Status: "up"}}, List: opamp.Component{Name: "list", Healthy: true, Status: "applied"},
	}
	stalled := n.stalled.Load()
	for i := range agentGPUs {
		d := opamp.Component{Name: fmt.Sprintf("GPU-%d", i), Healthy: !stalled, Status: "up"}
		if stalled {
			d.Status = "stalled"
			f.Stalled++
		}
		f.Devices = append(f.Devices, d)
	}
	return f
}

// agentCounts is the answer of /agents.
type agentCounts struct {
	Agents  int            `json:"agents"`
	Stalled int            `json:"stalled"`
	Touched int            `json:"touched"` // have applied a list
	Changes int64          `json:"changes"` // lists that were applied
	Lists   map[string]int `json:"lists"`   // agents by the SHA-256 of their list
}

func count(all []*agent) agentCounts {
	c := agentCounts{Agents: len(all), Lists: map[string]int{}}
	for _, n := range all {
		c.Lists[*n.hash.Load()]++
		if n.stalled.Load() {
			c.Stalled++
		}
		if changes := n.changes.Load(); changes > 0 {
			c.Touched++
			c.Changes += changes
		}
	}
	return c
}
