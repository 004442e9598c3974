package remote

import (
	"context"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/open-telemetry/opamp-go/protobufs"
	"github.com/open-telemetry/opamp-go/server"
	"github.com/open-telemetry/opamp-go/server/types"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/extensions/remote/opamp"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
	"warpgauge/pkg/lists"
	"warpgauge/pkg/session"
)

// newExporter returns a node of two GPUs, and what takes lists for it.
func newExporter(t *testing.T, change func(*Settings)) (*bench, *Remote) {
	t.Helper()
	e := &bench{t: t, series: 16}
	e.board.Store(gpus(2, listA))
	gpu := func(id string) session.DeviceStatus {
		return session.DeviceStatus{Device: collector.Device{ID: id, Level: field.GPU, Model: "H100"}, State: session.Up}
	}
	e.states = []session.CollectorStatus{
		{Name: "nvml", Up: true, Devices: []session.DeviceStatus{gpu("GPU-0"), gpu("GPU-1")}},
		{Name: "dcgm", Cause: session.CauseStandby, Reason: "nvml serves", Devices: []session.DeviceStatus{gpu("GPU-0")}},
	}
	cfg := config.Default()
	settings := defaults()
	settings.Mode, settings.URL = ModeApply, "http://lists"
	change(&settings)
	local := files().Parse(&config.Content{CSV: []byte(listA), Name: "counters.csv"})
	desk := lists.New(local, lists.Options{Local: files(), Engine: e, Logger: zap.NewNop()})
	r, err := New(t.Context(), Options{
		Settings: &settings, Config: cfg, Version: "1.2.3", Hostname: "node-7", Desk: desk, Engine: e, Page: e, Registerer: prometheus.NewRegistry(), Logger: zap.NewNop(),
	})
	must(t, err)
	return e, r
}

// TestFacts: what an OpAMP server hears of a node.
func TestFacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, r := newExporter(t, func(*Settings) {})
		e.costs = session.Costs{Collector: "nvml", Sources: map[string]session.SourceCost{
			"GPU-0": {Samples: 10, Time: time.Second, MissedTicks: 3}, "GPU-1": {Samples: 10, Time: 5 * time.Second},
		}}
		f := r.Facts()
		if f.GPUs != 2 || len(f.Models) != 1 || f.Stalled+f.Lost != 0 || f.Series != 16 || f.SampleSeconds != 0.5 || f.MissedTicks != 3 ||
			len(f.Devices) != 2 || len(f.Collectors) != 2 || !f.Collectors[0].Healthy || !f.Collectors[1].Healthy || len(f.ListHash) != 64 {
			t.Errorf("facts = %+v", f)
		}
		if f.List.Status != string(lists.Waiting) || !f.List.Healthy {
			t.Errorf("list = %+v", f.List)
		}
		// A session that begins counts from 0 again.
		e.costs = session.Costs{Collector: "nvml", Sources: map[string]session.SourceCost{"GPU-0": {Samples: 1, MissedTicks: 2}}}
		if f := r.Facts(); f.MissedTicks != 5 || f.SampleSeconds != 0 {
			t.Errorf("after another session facts = %+v", f)
		}

		ctx, cancel := context.WithCancel(t.Context())
		var watch sync.WaitGroup
		watch.Go(func() { r.watch(ctx) })
		time.Sleep(changePoll)
		synctest.Wait()
		changed := r.Changed()
		e.mu.Lock()
		lost := e.states[0]
		lost.Devices = append([]session.DeviceStatus(nil), lost.Devices...)
		lost.Devices[1].State, lost.Devices[1].Reason = session.Lost, "GPU is lost"
		e.states = []session.CollectorStatus{lost, e.states[1]}
		e.mu.Unlock()
		time.Sleep(changePoll)
		synctest.Wait()
		select {
		case <-changed:
		default:
			t.Error("a lost GPU is no change")
		}
		cancel()
		watch.Wait()
		if f := r.Facts(); f.Lost != 1 || f.Devices[1].Healthy || f.Devices[1].Error != "GPU is lost" {
			t.Errorf("facts = %+v", f)
		}

		if o := r.Effective(); len(o.Content) == 0 || o.Origin != "counters.csv" {
			t.Errorf("effective = %+v", o)
		}
		r.Deliver(t.Context(), &lists.Offer{Content: []byte(listB)})
		if o := r.Effective(); string(o.Content) != listB {
			t.Errorf("effective = %q", o.Content)
		}
		r.Deliver(t.Context(), &lists.Offer{Content: []byte("garbage")})
		if l := r.Facts().List; l.Healthy || l.Error == "" {
			t.Errorf("list = %+v", l)
		}
	})
}

// opampServer is opamp-go's server, with a list that it offers.
type opampServer struct {
	mu    sync.Mutex
	offer *protobufs.AgentRemoteConfig
	seen  protobufs.AgentToServer // the last of each part
}

func (s *opampServer) message(m *protobufs.AgentToServer) *protobufs.ServerToAgent {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.EffectiveConfig != nil {
		s.seen.EffectiveConfig = m.EffectiveConfig
	}
	if m.RemoteConfigStatus != nil {
		s.seen.RemoteConfigStatus = m.RemoteConfigStatus
	}
	answer := &protobufs.ServerToAgent{}
	if string(s.seen.RemoteConfigStatus.GetLastRemoteConfigHash()) != string(s.offer.ConfigHash) {
		answer.RemoteConfig = s.offer
	}
	return answer
}

func (s *opampServer) offers(hash, list string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offer = &protobufs.AgentRemoteConfig{ConfigHash: []byte(hash), Config: &protobufs.AgentConfigMap{ConfigMap: map[string]*protobufs.AgentConfigFile{
		opamp.ConfigName: {Body: []byte(list), ContentType: "text/csv"},
	}}}
}

// wantStatus waits until the agent has reported what became of an offer, and checks it.
func (s *opampServer) wantStatus(t *testing.T, hash string, want protobufs.RemoteConfigStatuses, words ...string) {
	t.Helper()
	var status protobufs.RemoteConfigStatuses
	var text, effective string
	eventually.True(t, "the agent reports on "+hash, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		r := s.seen.GetRemoteConfigStatus()
		status, text = r.GetStatus(), r.GetErrorMessage()
		effective = string(s.seen.GetEffectiveConfig().GetConfigMap().GetConfigMap()[opamp.ConfigName].GetBody())
		return string(r.GetLastRemoteConfigHash()) == hash && status != protobufs.RemoteConfigStatuses_RemoteConfigStatuses_APPLYING
	})
	if status != want || !strings.HasPrefix(effective, "DCGM_FI_DEV_SM_CLOCK,") {
		t.Errorf("status %v, %q; effective %q", status, text, effective)
	}
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("status %v lacks %q: %q", status, word, text)
		}
	}
}

// TestOpAMPServerDelivers: a node takes lists from opamp-go's own server, over TLS with a pinned CA and a token, and keeps
// what it runs when the next list is not one for it.
func TestOpAMPServerDelivers(t *testing.T) {
	for _, scheme := range []string{"opamp+https", "opamp+wss"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			s := &opampServer{}
			s.offers("good", "DCGM_FI_DEV_SM_CLOCK, gauge, clock\n")
			handler, conns, err := server.New(nil).Attach(server.Settings{Callbacks: types.Callbacks{OnConnecting: func(r *http.Request) types.ConnectionResponse {
				if r.Header.Get("Authorization") != "Bearer secret" {
					return types.ConnectionResponse{HTTPStatusCode: http.StatusUnauthorized}
				}
				return types.ConnectionResponse{Accept: true, ConnectionCallbacks: types.ConnectionCallbacks{
					OnMessage: func(_ context.Context, _ types.Connection, m *protobufs.AgentToServer) *protobufs.ServerToAgent {
						return s.message(m)
					},
				}}
			}}})
			must(t, err)
			h := httptest.NewUnstartedServer(http.HandlerFunc(handler))
			h.Config.ConnContext = conns
			h.StartTLS()
			defer h.Close()
			dir := t.TempDir()
			ca, token := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "token")
			must(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw}), 0o600))
			must(t, os.WriteFile(token, []byte("secret\n"), 0o600))

			e, r := newExporter(t, func(c *Settings) {
				c.URL, c.Interval = strings.Replace(h.URL, "https", scheme, 1), time.Second
				c.CAFile, c.TokenFile, c.NodeLabels = ca, token, map[string]string{"rack": "r7"}
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- r.Run(ctx) }()
			defer func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}()

			s.wantStatus(t, "good", protobufs.RemoteConfigStatuses_RemoteConfigStatuses_APPLIED)
			e.wantService("c")
			s.offers("bad", "DCGM_FI_DEV_GPU_TEMP, gauge, t, interval=50ms\n")
			s.wantStatus(t, "bad", protobufs.RemoteConfigStatuses_RemoteConfigStatuses_FAILED, "line 1: ", "the list in service stays, SHA-256 "+r.running())
			e.wantService("c")
		})
	}
}

// Run asks no server before the collectors have been opened, and ends while it waits for them.
func TestRunWaitsForDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		e, r := newExporter(t, func(*Settings) {})
		r.source.(*URL).client.Transport = roundTrip(func(*http.Request) (*http.Response, error) {
			asked.Add(1)
			return nil, errors.New("no route")
		})
		e.states = []session.CollectorStatus{{Name: "nvml", Cause: session.CauseOpening}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		time.Sleep(openPatience - time.Second)
		if asked.Load() > 0 {
			t.Error("the server was asked before the devices were known")
		}
		time.Sleep(time.Minute)
		if asked.Load() == 0 {
			t.Error("a collector that hangs keeps the node from its server")
		}
		cancel()
		must(t, <-done)
	})
}
