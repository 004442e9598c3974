package opamp

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/open-telemetry/opamp-go/protobufs"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/lists"
)

// statusText returns a short form of a status.
func statusText(s *protobufs.RemoteConfigStatus) string {
	return string(s.GetLastRemoteConfigHash()) + " " + s.GetStatus().String()[len("RemoteConfigStatuses_"):]
}

// flat writes a tree of components as lines.
func flat(prefix string, h *protobufs.ComponentHealth, into map[string]string) map[string]string {
	into[prefix] = map[bool]string{true: "+", false: "-"}[h.Healthy] + h.Status
	if h.LastError != "" {
		into[prefix] += ": " + h.LastError
	}
	for name, c := range h.ComponentHealthMap {
		flat(prefix+"/"+name, c, into)
	}
	return into
}

// attributes returns the attributes by name; a list is joined with commas.
func attributes(all []*protobufs.KeyValue) map[string]any {
	m := map[string]any{}
	for _, kv := range all {
		m[kv.Key] = kv.Value.GetStringValue()
		switch v := kv.Value.Value.(type) {
		case *protobufs.AnyValue_IntValue:
			m[kv.Key] = v.IntValue
		case *protobufs.AnyValue_ArrayValue:
			for _, e := range v.ArrayValue.Values {
				m[kv.Key] = m[kv.Key].(string) + e.GetStringValue() + ","
			}
		}
	}
	return m
}

func TestServerLearnsWhatTheNodeIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{}
		b := startPeer(t, p, nil)
		elapse(spread)
		m, n := p.view()
		testkit.Equal(t, fmt.Sprintf("messages and questions for all after %s", spread), [2]int{1, 0}, [2]int{n, p.fullAsks})
		d := m.AgentDescription
		testkit.Equal(t, "identifying attributes", map[string]any{
			"service.name": "warpgauge", "service.version": "1.2.3", "service.instance.id": uid.String(),
		}, attributes(d.IdentifyingAttributes))
		testkit.Equal(t, "other attributes", map[string]any{
			"host.name": "node-7", "os.type": "linux", "warpgauge.node.rack": "r7", "warpgauge.node.zone": "z1",
			"warpgauge.gpus": int64(2), "warpgauge.models": "NVIDIA H200,", "warpgauge.drivers": "570.86.15,",
		}, attributes(d.NonIdentifyingAttributes))
		testkit.Equal(t, "health", map[string]string{
			"": "+up", "/collectors": "+up", "/collectors/nvml": "+up", "/devices": "+up", "/devices/GPU-1": "+up", "/devices/GPU-2": "+up",
			"/list": "+applied", "/list/hash": "+5ca1ab1e", "/list/origin": "+/etc/warpgauge/counters.csv", "/list/applied": "+1767225600",
			"/gates": "+up", "/gates/stalled_devices": "+0", "/gates/lost_devices": "+0", "/gates/sample_seconds": "+0.015",
			"/gates/missed_ticks": "+0", "/gates/absent_fields": "+0", "/gates/series": "+120",
		}, flat("", m.Health, map[string]string{}))
		if f := m.EffectiveConfig.ConfigMap.ConfigMap[ConfigName]; string(f.GetBody()) != csv || f.GetContentType() != "text/csv" {
			t.Errorf("effective configuration: %v", f)
		}
		testkit.Equal(t, "status before an offer", protobufs.RemoteConfigStatuses_RemoteConfigStatuses_UNSET, m.RemoteConfigStatus.Status)
		testkit.Equal(t, "capabilities: status, remote and effective configuration, health, heartbeat", uint64(0x3807), m.Capabilities)
		b.stop()
		m, _ = p.view()
		testkit.Equal(t, "the end of the agent was reported", true, m.AgentDisconnect != nil)
	})
}

// TestOnlyWhatHasChangedIsSent bounds the size of a poll without changes and the number of polls per hour.
func TestOnlyWhatHasChangedIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{}
		b := startPeer(t, p, nil)
		elapse(time.Hour)
		_, n := p.view()
		want := int(time.Hour / interval)
		testkit.Between(t, "messages in an hour", want*19/20, want*21/20, n)
		testkit.AtMost(t, "bytes of a message without news", 32, proto.Size(p.got[n-1]))
		// A slightly slower sample sends no update. A much slower one, or a stalled device, sends one soon.
		b.change(func() {
			b.facts.SampleSeconds = 0.018
			b.facts.Devices[0].Since = time.Now() // time of its last sample
		})
		elapse(2 * interval)
		for _, got := range p.got[n:] {
			testkit.ErrorIf(t, got.Health != nil, "another sample was reported: %v", got.Health)
		}
		b.change(func() {
			b.facts.SampleSeconds, b.facts.Series = -1, 0
			b.facts.Devices = []Component{{Name: "GPU-1", Healthy: true, Status: "up"}, {Name: "GPU-2", Status: "stalled", Error: "no answer for 30s"}}
		})
		elapse(2 * interval)
		m, _ := p.view()
		tree := flat("", m.Health, map[string]string{})
		for path, want := range map[string]string{
			"": "-impaired: devices: GPU-2: no answer for 30s", "/devices/GPU-2": "-stalled: no answer for 30s", "/devices/GPU-1": "+up", "/gates/sample_seconds": "", "/gates/series": "",
		} {
			testkit.Equal(t, "health of "+path, want, tree[path])
		}
		got := p.got[len(p.got)-1]
		testkit.ErrorIf(t, got.AgentDescription != nil || got.EffectiveConfig != nil || got.RemoteConfigStatus != nil, "more than the health was sent: %v", got)
	})
}

// TestUnknownIsNotReported: a node whose collector is down reports only numbers that it knows.
func TestUnknownIsNotReported(t *testing.T) {
	a := quietAgent(t)
	f := Facts{Collectors: []Component{{Name: "nvml"}}}
	got := attributes(a.description(&f).NonIdentifyingAttributes)
	testkit.Equal(t, "attributes", map[string]any{"host.name": "", "os.type": "linux"}, got)
	f.GPUs = 1
	testkit.Equal(t, "GPUs of another collector", any(int64(1)), attributes(a.description(&f).NonIdentifyingAttributes)[AttributeGPUs])
	for _, c := range []struct {
		seconds float64
		want    string
	}{{0, "0"}, {1, "1"}, {1.25, "1"}, {1.3, "1.3"}, {1.1, "1.3"}, {-1, ""}} {
		f.SampleSeconds = c.seconds
		testkit.Equal(t, fmt.Sprintf("%v s as they are reported", c.seconds), c.want, a.gates(&f).ComponentHealthMap[GateSampleSeconds].GetStatus())
	}
}

func TestOfferIsAcknowledged(t *testing.T) {
	running := "the list in service stays, SHA-256 ca11ab1e"
	for name, c := range map[string]struct {
		out  lists.Outcome
		want string
		text []string
	}{
		"applied":   {lists.Outcome{Answer: lists.Applied}, "r1 APPLIED", nil},
		"unchanged": {lists.Outcome{Answer: lists.Unchanged}, "r1 APPLIED", nil},
		"reported":  {lists.Outcome{Answer: lists.Reported, Running: "ca11ab1e"}, "r1 FAILED", []string{ReportOnly, running}},
		"failed": {
			lists.Outcome{Answer: lists.Failed, Running: "ca11ab1e", Err: errors.New("the guard refuses 1 line"), Refused: []lists.Refusal{{Line: 3, Text: "interval 1ms is too short"}}},
			"r1 FAILED", []string{"the guard refuses 1 line", "line 3: interval 1ms is too short", running},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{reply: offering(config("r1", ConfigName, "text/csv", csv))}
				b := startPeer(t, p, nil)
				b.change(func() { b.outcome = func(*lists.Offer) *lists.Outcome { time.Sleep(15 * time.Second); return &c.out } })
				elapse(spread + 2*time.Second)
				m, _ := p.view()
				testkit.Equal(t, "status while it is delivered", "r1 APPLYING", statusText(m.RemoteConfigStatus))
				elapse(interval)
				m, n := p.view()
				testkit.Equal(t, "status", c.want, statusText(m.RemoteConfigStatus))
				testkit.Has(t, "error message", m.RemoteConfigStatus.ErrorMessage, c.text...)
				testkit.ErrorIf(t, len(c.text) == 0 && m.RemoteConfigStatus.ErrorMessage != "", "error message %q without an error", m.RemoteConfigStatus.ErrorMessage)
				testkit.AtMost(t, "messages for one offer", 4, n)
				testkit.Equal(t, "offers", []*lists.Offer{{Origin: "opamp+http://fleet.example", Revision: "7231", Content: []byte(csv)}}, b.offers())
			})
		})
	}
}

// TestRestartIsNoNewOffer: the first message acknowledges a list that was applied before the restart.
func TestRestartIsNoNewOffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{reply: offering(config("r1", "", "text/csv", csv))}
		b := startPeer(t, p, func(o *Options) {
			o.Node.(*node).effective = &lists.Offer{Origin: "opamp+" + o.URL.String(), Revision: "7231", Content: []byte(csv)}
		})
		elapse(2 * interval)
		m, _ := p.view()
		if got := statusText(m.RemoteConfigStatus); got != "r1 APPLIED" || len(b.lists()) != 0 {
			t.Errorf("status %q and lists %q, want r1 APPLIED and none", got, b.lists())
		}
		testkit.Equal(t, "revision of the running list", "+7231", flat("", m.Health, map[string]string{})["/list/revision"])
	})
}

func TestFullStateIsSentWhenAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{}
		startPeer(t, p, nil)
		elapse(10 * interval)
		p.mu.Lock()
		p.model = nil // the server restarts and loses its state
		before := len(p.got)
		p.mu.Unlock()
		elapse(interval + 10*time.Second)
		m, n := p.view()
		if m.AgentDescription == nil || m.Health == nil || m.EffectiveConfig == nil || m.RemoteConfigStatus == nil {
			t.Errorf("after %d more messages the server has %v", n-before, m)
		}
		testkit.Equal(t, "times that the server had to ask", 1, p.fullAsks)
		// A server that always asks for more gets at most one extra message per interval.
		p.set(always(&protobufs.ServerToAgent{Flags: 1}))
		_, before = p.view()
		elapse(time.Hour)
		_, after := p.view()
		testkit.AtMost(t, "messages in an hour to a server that always asks for all", 2*int(time.Hour/interval)+earlyBurst+10, after-before)
	})
}

func TestServerAssignsInstanceID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := []byte("0123456789abcdef")
		p := &peer{reply: func(n int, m *protobufs.AgentToServer) *protobufs.ServerToAgent {
			switch n {
			case 1:
				return &protobufs.ServerToAgent{InstanceUid: m.InstanceUid, AgentIdentification: &protobufs.AgentIdentification{NewInstanceUid: other}}
			case 2:
				return &protobufs.ServerToAgent{AgentIdentification: &protobufs.AgentIdentification{NewInstanceUid: []byte("short")}}
			}
			return nil
		}}
		startPeer(t, p, nil)
		elapse(3 * interval)
		m, n := p.view()
		testkit.ErrorIf(t, string(m.InstanceUid) != string(other) || n < 3, "after %d messages the id is %x, want %x", n, m.InstanceUid, other)
		testkit.Equal(t, "service.instance.id", any("30313233-3435-3637-3839-616263646566"), attributes(m.AgentDescription.IdentifyingAttributes)["service.instance.id"])
	})
}

func TestOtherOffersAreIgnoredAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{reply: func(n int, _ *protobufs.AgentToServer) *protobufs.ServerToAgent {
			if n > 3 {
				return nil
			}
			return &protobufs.ServerToAgent{
				Command:           &protobufs.ServerToAgentCommand{},
				PackagesAvailable: &protobufs.PackagesAvailable{Packages: map[string]*protobufs.PackageAvailable{"p": {Version: "2"}}, AllPackagesHash: []byte("h")},
				ConnectionSettings: &protobufs.ConnectionSettingsOffers{
					Opamp: &protobufs.OpAMPConnectionSettings{DestinationEndpoint: "https://evil.example", HeartbeatIntervalSeconds: 1},
				},
				CustomMessage: &protobufs.CustomMessage{Capability: "c", Data: []byte("d")},
			}
		}}
		b := startPeer(t, p, nil)
		elapse(10 * interval)
		for _, name := range ignored {
			testkit.Equal(t, name, 3.0, testutil.ToFloat64(b.ignored.WithLabelValues(name)))
		}
		testkit.Equal(t, "lines of log, one of each", len(ignored), b.logs.FilterMessage("ignoring an unsupported offer of the server").Len())
		if _, n := p.view(); n > 12 || len(b.lists()) != 0 {
			t.Errorf("%d messages and lists %q: the server has changed the agent", n, b.lists())
		}
	})
}

// TestEndWhileAListIsDelivered: at exit the agent waits for a delivery no longer than the delivery lasts.
func TestEndWhileAListIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{reply: offering(config("r1", ConfigName, "", csv))}
		b := startPeer(t, p, nil)
		ended := make(chan struct{})
		b.change(func() {
			b.outcome = func(*lists.Offer) *lists.Outcome {
				<-ended
				return &lists.Outcome{Answer: lists.Failed, Err: context.Canceled}
			}
		})
		elapse(spread + soon)
		stopped := make(chan struct{})
		go func() { b.stop(); close(stopped) }()
		synctest.Wait()
		select {
		case <-stopped:
			t.Error("Run has ended before deliver")
		default:
		}
		close(ended)
		<-stopped
	})
}
