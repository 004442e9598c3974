package healthrpc

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/pkg/verdict"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"warpgauge/extensions/health/healthrpc/healthv1"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// stream is one client, which reads when the test does.
type stream struct {
	grpc.ServerStream
	ctx  context.Context
	sent chan *healthv1.WatchResponse
}

func (s *stream) Context() context.Context { return s.ctx }

func (s *stream) Send(m *healthv1.WatchResponse) error {
	select {
	case s.sent <- m:
		return nil
	case <-s.ctx.Done():
		return status.FromContextError(s.ctx.Err()).Err()
	}
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var board verdict.Board
		ctx, cancel := context.WithCancel(t.Context())
		client := &stream{ctx: ctx, sent: make(chan *healthv1.WatchResponse)}
		ended := make(chan error, 1)
		go func() { ended <- New(Options{Board: &board}).Watch(nil, client) }()
		time.Sleep(time.Minute)
		select {
		case m := <-client.sent:
			t.Errorf("sent before there is a snapshot: %v", m)
		default:
		}
		want := func(when string, version uint64, isHeartbeat bool) {
			t.Helper()
			m := <-client.sent
			got := m.GetSnapshot().GetVersion()
			if isHeartbeat {
				got = m.GetHeartbeat().GetVersion()
			}
			if got != version {
				t.Errorf("%s: sent %v, want version %d, heartbeat: %v", when, m, version, isHeartbeat)
			}
		}
		begin := time.Now()
		board.Store(&verdict.Snapshot{Version: 1, Time: noon})
		want("the first", 1, false)
		if wait := time.Since(begin); wait != 0 {
			t.Errorf("the first snapshot came after %v", wait)
		}
		board.Store(&verdict.Snapshot{Version: 1, Time: noon.Add(5 * time.Second)}) // judged again, nothing new
		want("nothing new", 1, true)
		if wait := time.Since(begin); wait != heartbeat {
			t.Errorf("a heartbeat after %v, want %v", wait, heartbeat)
		}
		board.Store(&verdict.Snapshot{Version: 2})
		synctest.Wait() // it is being sent
		for v := uint64(3); v <= 1000; v++ {
			board.Store(&verdict.Snapshot{Version: v})
		}
		want("what was being sent", 2, false)
		want("the newest, of those that the client was too slow for", 1000, false)
		cancel()
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Errorf("it ended with %v", err)
		}
	})
}

func TestGet(t *testing.T) {
	var board verdict.Board
	s := New(Options{
		Board: &board, Node: "node-1", Hostname: "host", Version: "1.2.3", Vendor: func(*collector.Device) string { return "NVIDIA" },
	})
	if _, err := s.Get(t.Context(), nil); status.Code(err) != codes.Unavailable {
		t.Errorf("before anything is judged: %v", err)
	}
	evidence := []verdict.Evidence{{Time: noon, Source: "kernel log", Text: "NVRM: Xid"}}
	board.Store(&verdict.Snapshot{Version: 7, Time: noon.Add(time.Minute), Verdicts: []verdict.Verdict{
		{
			Device: collector.Device{ID: "GPU-1", Level: field.GPU, GPU: "3", UUID: "GPU-1", PCIBusID: "00000000:3B:00.0", Node: "nvidia3", Model: "H100"},
			State:  verdict.Failed, Reason: "xid_79", Text: "fallen off the bus", Action: verdict.ActionReboot, Since: noon,
			Conditions: []verdict.Condition{{
				Reason: "xid_79", State: verdict.Failed, Action: verdict.ActionReboot, Text: "fallen off the bus", Since: noon, Last: noon.Add(time.Second), Evidence: evidence,
			}},
		},
		{
			Device: collector.Device{ID: "GPU-1/1", Parent: "GPU-1", Level: field.Instance, Alias: "amdgpu_xcp_1",
				Instance: collector.Instance{Profile: "1g.10gb", ID: "1", ComputeID: "0", UUID: "MIG-1"}},
			State: verdict.OK, Action: verdict.ActionNone,
		},
	}})
	got, err := s.Get(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	failed, reboot := healthv1.State_STATE_FAILED, healthv1.RecommendedAction_RECOMMENDED_ACTION_REBOOT
	want := &healthv1.GetResponse{Snapshot: &healthv1.Snapshot{
		Version: 7, Time: timestamppb.New(noon.Add(time.Minute)),
		Node: &healthv1.Node{Name: "node-1", Hostname: "host", ExporterVersion: "1.2.3"},
		Devices: []*healthv1.DeviceHealth{
			{
				Device: &healthv1.Device{
					Id: "GPU-1", Kind: healthv1.Kind_KIND_GPU, Index: "3", Uuid: "GPU-1", PciBusId: "0000:3b:00.0", DeviceNode: "nvidia3", Model: "H100", Vendor: "NVIDIA",
				},
				State: failed, Reason: "xid_79", Message: "fallen off the bus", RecommendedAction: reboot, Since: timestamppb.New(noon),
				Conditions: []*healthv1.Condition{{
					Reason: "xid_79", State: failed, RecommendedAction: reboot, Message: "fallen off the bus",
					Since: timestamppb.New(noon), LastSeen: timestamppb.New(noon.Add(time.Second)),
					Evidence: []*healthv1.Evidence{{Time: timestamppb.New(noon), Source: "kernel log", Text: "NVRM: Xid"}},
				}},
			},
			{
				Device: &healthv1.Device{
					Id: "GPU-1/1", ParentId: "GPU-1", Kind: healthv1.Kind_KIND_INSTANCE, Vendor: "NVIDIA", PluginId: "amdgpu_xcp_1",
					Instance: &healthv1.Instance{Profile: "1g.10gb", Id: "1", ComputeId: "0", Uuid: "MIG-1"},
				},
				State: healthv1.State_STATE_OK, RecommendedAction: healthv1.RecommendedAction_RECOMMENDED_ACTION_NONE,
			},
		},
	}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestEveryValueHasAName: a state or an action without one would be sent as unspecified.
func TestEveryValueHasAName(t *testing.T) {
	for s := verdict.OK; s <= verdict.Failed; s++ {
		if states[s] == healthv1.State_STATE_UNSPECIFIED {
			t.Errorf("state %v", s)
		}
	}
	if len(states) != len(healthv1.State_name)-1 {
		t.Errorf("%d states, the proto has %d", len(states), len(healthv1.State_name)-1)
	}
	seen := map[healthv1.RecommendedAction]bool{}
	for _, a := range actions {
		seen[a] = true
	}
	if len(seen) != len(healthv1.RecommendedAction_name)-1 {
		t.Errorf("%d actions, the proto has %d", len(seen), len(healthv1.RecommendedAction_name)-1)
	}
}
