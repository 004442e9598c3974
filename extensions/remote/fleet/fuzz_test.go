package fleet

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/open-telemetry/opamp-go/protobufs"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"warpgauge/extensions/remote/opamp"
)

// FuzzMessages: whatever agents send, the core answers, keeps its bounds and offers only lists that it has.
func FuzzMessages(f *testing.F) {
	hash := newList("", []byte(listA)).Hash
	seed, err := proto.Marshal(&protobufs.AgentToServer{
		InstanceUid: bytes.Repeat([]byte{1}, 16), Capabilities: takesLists,
		AgentDescription:   &protobufs.AgentDescription{IdentifyingAttributes: []*protobufs.KeyValue{keyValue("host.name", "a"), keyValue(opamp.LabelPrefix+"rack", "r1")}},
		RemoteConfigStatus: &protobufs.RemoteConfigStatus{LastRemoteConfigHash: []byte(hash), Status: applied},
		Health: &protobufs.ComponentHealth{ComponentHealthMap: map[string]*protobufs.ComponentHealth{
			opamp.HealthGates: {ComponentHealthMap: map[string]*protobufs.ComponentHealth{opamp.GateStalled: {Status: "1"}}}, opamp.HealthList: {LastError: "x"},
		}},
		EffectiveConfig: &protobufs.EffectiveConfig{ConfigMap: &protobufs.AgentConfigMap{ConfigMap: map[string]*protobufs.AgentConfigFile{"": {Body: []byte(listB)}}}},
	})
	must(f, err)
	f.Add(seed, seed[:20])
	f.Add([]byte{}, seed)
	totals := newTotals(prometheus.NewRegistry())
	f.Fuzz(func(t *testing.T, a, b []byte) {
		now := time.Now()
		plan := &Plan{Hash: "x", Cohorts: []*Cohort{{Name: "all", List: newList("a", []byte(listA)), Policy: Policy{Stages: []Stage{{Percent: 100}}, Timeout: time.Minute}}}}
		c := newCore(Options{Log: zap.NewNop(), MaxAgents: 1}, totals, nil, newSaved(), now)
		c.lists[hash], c.cohorts["all"] = plan.Cohorts[0].List, &status{Name: "all", Stable: hash}
		c.plan = plan
		for _, body := range [][]byte{a, b, a} {
			var m protobufs.AgentToServer
			if proto.Unmarshal(body, &m) != nil || newReport(&m) == nil {
				continue
			}
			if out := c.report(newReport(&m), credential{shared: true}, now); out.RemoteConfig != nil && string(out.RemoteConfig.Config.ConfigMap[opamp.ConfigName].Body) != listA {
				t.Errorf("offer %v", out.RemoteConfig)
			}
			c.fleet(now)
			c.find("", "", now)
			if len(c.agents) > 1 {
				t.Errorf("%d agents are kept", len(c.agents))
			}
		}
	})
}

// FuzzState: decode returns a state or an error, and decodes its own encoding again.
func FuzzState(f *testing.F) {
	f.Add([]byte(`{"format":2,"cohorts":{"a":{"name":"a","rollout":{"id":1,"stage":0}}},"members":{"a":{"01000000-0000-0000-0000-000000000007":{"before":{"series":1}}}}}`))
	f.Add([]byte(`{"lists":{"00":{"hash":"00"}}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		state, again := newSaved(), newSaved()
		if state.decode(content) != nil {
			return
		}
		text, err := state.encode()
		if err = errors.Join(err, again.decode(text)); err != nil || len(again.cohorts) != len(state.cohorts) || len(again.lists) != len(state.lists) {
			t.Errorf("%+v is read again as %+v: %v", state, again, err)
		}
	})
}
