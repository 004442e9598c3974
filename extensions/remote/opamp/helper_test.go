package opamp

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/open-telemetry/opamp-go/protobufs"
	"github.com/open-telemetry/opamp-go/server"
	"github.com/open-telemetry/opamp-go/server/types"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/lists"
)

var must = testkit.Must

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	interval = 30 * time.Second
	csv      = "DCGM_FI_DEV_GPU_TEMP, gauge, temperature\n"
)

var uid = uuid.MustParse("0199e5a4-7c3b-7000-8000-0123456789ab")

// peer is an OpAMP server built on opamp-go's server library. It merges reports as the library's
// example does: omitted parts stay, and after a gap in the sequence it asks for the full state.
type peer struct {
	mu       sync.Mutex
	got      []*protobufs.AgentToServer
	model    *protobufs.AgentToServer
	fullAsks int
	reply    func(n int, m *protobufs.AgentToServer) *protobufs.ServerToAgent // n from 1; nil: an empty answer
}

func (p *peer) handler(t *testing.T) (http.Handler, func(context.Context, net.Conn) context.Context) {
	t.Helper()
	on := types.ConnectionCallbacks{OnMessage: func(_ context.Context, _ types.Connection, m *protobufs.AgentToServer) *protobufs.ServerToAgent {
		return p.message(m)
	}}
	handle, conn, err := server.New(nil).Attach(server.Settings{Callbacks: types.Callbacks{
		OnConnecting: func(*http.Request) types.ConnectionResponse {
			return types.ConnectionResponse{Accept: true, ConnectionCallbacks: on}
		},
	}})
	must(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/opamp", handle)
	return mux, conn
}

func (p *peer) message(m *protobufs.AgentToServer) *protobufs.ServerToAgent {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got = append(p.got, m)
	answer := &protobufs.ServerToAgent{}
	if p.reply != nil {
		answer = cmp.Or(p.reply(len(p.got), m), answer)
	}
	before := cmp.Or(p.model, &protobufs.AgentToServer{})
	lost := m.SequenceNum != before.SequenceNum+1
	if lost && (m.AgentDescription == nil || m.Health == nil || m.EffectiveConfig == nil || m.RemoteConfigStatus == nil) && m.AgentDisconnect == nil {
		p.fullAsks++
		answer.Flags |= uint64(protobufs.ServerToAgentFlags_ServerToAgentFlags_ReportFullState)
	}
	p.model = proto.Clone(m).(*protobufs.AgentToServer)
	p.model.AgentDescription = cmp.Or(m.AgentDescription, before.AgentDescription)
	p.model.Health = cmp.Or(m.Health, before.Health)
	p.model.EffectiveConfig = cmp.Or(m.EffectiveConfig, before.EffectiveConfig)
	p.model.RemoteConfigStatus = cmp.Or(m.RemoteConfigStatus, before.RemoteConfigStatus)
	return answer
}

// view returns the merged state and the number of messages.
func (p *peer) view() (*protobufs.AgentToServer, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return proto.Clone(p.model).(*protobufs.AgentToServer), len(p.got)
}

func (p *peer) set(reply func(int, *protobufs.AgentToServer) *protobufs.ServerToAgent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reply = reply
}

// node is the exporter as the agent sees it: Node and Desk.
type node struct {
	mu        sync.Mutex // held during every call of the agent
	facts     Facts
	effective *lists.Offer
	delivered []*lists.Offer
	outcome   func(*lists.Offer) *lists.Outcome // returns the outcome of a list
	failures  []string
	refusals  []string
	answers   int
}

func (n *node) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

func (n *node) Facts() (f Facts)            { n.change(func() { f = n.facts }); return f }
func (n *node) Effective() (o *lists.Offer) { n.change(func() { o = n.effective }); return o }
func (n *node) Unreachable(err error) {
	n.change(func() { n.failures = append(n.failures, err.Error()) })
}
func (n *node) Refused(err error) { n.change(func() { n.refusals = append(n.refusals, err.Error()) }) }
func (n *node) Answered()         { n.change(func() { n.answers++ }) }
func (n *node) offers() (all []*lists.Offer) {
	n.change(func() { all = slices.Clone(n.delivered) })
	return all
}

func (n *node) Deliver(_ context.Context, o *lists.Offer) *lists.Outcome {
	var outcome func(*lists.Offer) *lists.Outcome
	n.change(func() { n.delivered, outcome = append(n.delivered, o), n.outcome })
	if outcome != nil {
		return outcome(o)
	}
	n.change(func() { n.effective = o })
	return &lists.Outcome{Answer: lists.Applied}
}

// heard returns the failures, refusals and good answers that the agent reported.
func (n *node) heard() (failures, refusals []string, answers int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.failures), slices.Clone(n.refusals), n.answers
}

// lists returns the contents of the offers so far.
func (n *node) lists() (all []string) {
	for _, o := range n.offers() {
		all = append(all, string(o.Content))
	}
	return all
}

// bench is an agent in a synctest bubble, with its log.
type bench struct {
	*node
	logs    *observer.ObservedLogs
	ignored *prometheus.CounterVec
	stop    func()
}

// start runs an agent against a handler. The agent ends with the bubble at the latest.
func start(t *testing.T, h http.Handler, connContext func(context.Context, net.Conn) context.Context, edit func(*Options)) *bench {
	t.Helper()
	network := bufconn.Listen(1 << 16) // an in-process network, so that the bubble controls time
	s := &http.Server{Handler: h, ConnContext: connContext}
	go func() { _ = s.Serve(network) }()
	n := &node{
		facts: Facts{
			GPUs: 2, Models: []string{"NVIDIA H200"}, Drivers: []string{"570.86.15"},
			Collectors: []Component{{Name: "nvml", Healthy: true, Status: "up"}},
			Devices:    []Component{{Name: "GPU-1", Healthy: true, Status: "up"}, {Name: "GPU-2", Healthy: true, Status: "up"}},
			List:       Component{Healthy: true, Status: "applied"},
			ListHash:   "5ca1ab1e", SampleSeconds: 0.015, Series: 120, AppliedSeconds: 1767225600,
		},
		effective: &lists.Offer{Origin: "/etc/warpgauge/counters.csv", Content: []byte(csv)},
	}
	core, logs := observer.New(zap.InfoLevel)
	o := Options{
		URL: &url.URL{Scheme: "http", Host: "fleet.example"}, Interval: interval, MaxBytes: 7 << 19, Logger: zap.New(core),
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return network.DialContext(ctx) }, DisableCompression: true, ResponseHeaderTimeout: 15 * time.Second, MaxResponseHeaderBytes: 64 << 10},
		Identity:  Identity{InstanceID: uid, Version: "1.2.3", Hostname: "node-7", Labels: map[string]string{"rack": "r7", "zone": "z1"}},
		Node:      n,
		Desk:      n,
		Ignored:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ignored"}, []string{"offer"}),
	}
	if edit != nil {
		edit(&o)
	}
	stop := testkit.Start(t, New(o).Run)
	b := &bench{node: n, logs: logs, ignored: o.Ignored, stop: sync.OnceFunc(func() {
		stop()
		must(t, s.Close())
		o.Transport.(*http.Transport).CloseIdleConnections()
	})}
	t.Cleanup(b.stop)
	return b
}

// startPeer runs an agent against a peer.
func startPeer(t *testing.T, p *peer, edit func(*Options)) *bench {
	t.Helper()
	h, c := p.handler(t)
	return start(t, h, c, edit)
}

// elapse lets time pass and waits until all goroutines are idle.
func elapse(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// config returns an offer with one file.
func config(hash, name, contentType, body string) *protobufs.AgentRemoteConfig {
	return &protobufs.AgentRemoteConfig{
		ConfigHash: []byte(hash),
		Config: &protobufs.AgentConfigMap{ConfigMap: map[string]*protobufs.AgentConfigFile{
			name: {Body: []byte(body), ContentType: contentType},
		}},
	}
}

// always returns a handler that sends the same answer to every message.
func always(answer *protobufs.ServerToAgent) func(int, *protobufs.AgentToServer) *protobufs.ServerToAgent {
	return func(int, *protobufs.AgentToServer) *protobufs.ServerToAgent {
		return proto.Clone(answer).(*protobufs.ServerToAgent)
	}
}

// offering returns a handler that sends a configuration until the agent acknowledges it.
func offering(c *protobufs.AgentRemoteConfig) func(int, *protobufs.AgentToServer) *protobufs.ServerToAgent {
	known := ""
	return func(_ int, m *protobufs.AgentToServer) *protobufs.ServerToAgent {
		if m.RemoteConfigStatus != nil {
			known = string(m.RemoteConfigStatus.LastRemoteConfigHash)
		}
		if known == string(c.ConfigHash) {
			return nil
		}
		return &protobufs.ServerToAgent{RemoteConfig: c}
	}
}

// quietAgent returns an agent that does not run.
func quietAgent(t testing.TB) *Agent {
	t.Helper()
	n := &node{effective: &lists.Offer{}}
	return New(Options{
		URL: &url.URL{Scheme: "http", Host: "fleet.example"}, Transport: http.DefaultTransport, Interval: interval, Logger: zap.NewNop(),
		Identity: Identity{InstanceID: uid}, Node: n, Desk: n,
		Ignored: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ignored"}, []string{"offer"}),
	})
}
