package fleet

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/open-telemetry/opamp-go/protobufs"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"warpgauge/extensions/remote/opamp"
	"warpgauge/internal/testkit"
)

func keyValue(key, value string) *protobufs.KeyValue {
	return &protobufs.KeyValue{Key: key, Value: &protobufs.AnyValue{Value: &protobufs.AnyValue_StringValue{StringValue: value}}}
}

// TestHostileReport: the record of an agent stays within its bounds, whatever the agent sends.
func TestHostileReport(t *testing.T) {
	long := strings.Repeat("ü", 10_000)
	m := &protobufs.AgentToServer{InstanceUid: make([]byte, 16), AgentDescription: &protobufs.AgentDescription{}, RemoteConfigStatus: &protobufs.RemoteConfigStatus{
		ErrorMessage: long, LastRemoteConfigHash: make([]byte, 10_000),
	}}
	testkit.ErrorIf(t, newReport(m) != nil, "a uid of zeros was taken")
	m.InstanceUid[3] = 1
	deep := &protobufs.ComponentHealth{}
	for range 1000 {
		deep = &protobufs.ComponentHealth{ComponentHealthMap: map[string]*protobufs.ComponentHealth{long: deep}}
	}
	wide := &protobufs.ComponentHealth{ComponentHealthMap: map[string]*protobufs.ComponentHealth{}}
	for i := range 10_000 {
		m.AgentDescription.NonIdentifyingAttributes = append(m.AgentDescription.NonIdentifyingAttributes, keyValue(fmt.Sprint(i, long), long))
		wide.ComponentHealthMap[fmt.Sprint(i)] = &protobufs.ComponentHealth{LastError: long}
	}
	gates := map[string]*protobufs.ComponentHealth{}
	for name, text := range map[string]string{opamp.GateStalled: "-1", opamp.GateLost: "NaN", opamp.GateSeries: "+Inf", opamp.GateAbsentFields: "7", opamp.GateMissedTicks: "0", "x": "1"} {
		gates[name] = &protobufs.ComponentHealth{Status: text}
	}
	m.Health = &protobufs.ComponentHealth{ComponentHealthMap: map[string]*protobufs.ComponentHealth{
		"deep": deep, "wide": wide, "nil": nil, opamp.HealthGates: {ComponentHealthMap: gates},
	}}
	r := newReport(m)
	kept := len(r.status.err) + len(r.status.hash)
	for key, value := range r.labels {
		kept += len(key) + len(value)
	}
	for _, text := range r.health.troubles {
		kept += len(text)
	}
	if most := maxAttributes*(maxKey+maxValue) + maxTroubles*maxValue + maxError; kept > most || kept == 0 {
		t.Errorf("%d bytes are kept, at most %d may be", kept, most)
	}
	testkit.Equal(t, "numbers", Numbers{opamp.GateAbsentFields: 7, opamp.GateMissedTicks: 0}, r.health.numbers)
	if size := reflect.TypeFor[agent]().Size(); size > 1024 {
		t.Errorf("an agent takes %d bytes without its texts", size)
	}
}

// TestAgentsLimit: at the limit, a new agent replaces a silent one and never an active one.
func TestAgentsLimit(t *testing.T) {
	s := newSim(t, 0, "")
	s.core.o.MaxAgents = 100
	come := func(from, to int) (taken int) {
		for i := from; i < to; i++ {
			n := s.add(i)
			a := s.core.report(&report{uid: n.uid, capabilities: takesLists, labels: map[string]string{"host.name": n.host}}, credential{name: n.host}, s.now)
			if a.ErrorResponse == nil {
				taken++
			}
		}
		return taken
	}
	if n := come(0, 1000); n != 100 || len(s.core.agents) != 100 {
		t.Errorf("%d agents were taken, %d are kept", n, len(s.core.agents))
	}
	s.now = s.now.Add(silentAfter - time.Second)
	for _, n := range s.nodes[:40] {
		s.poll(n)
	}
	s.now = s.now.Add(2 * time.Second)
	if n := come(1000, 2000); n != 60 || len(s.core.agents) != 100 {
		t.Errorf("%d agents took the place of 60 silent ones, %d are kept", n, len(s.core.agents))
	}
	for _, n := range s.nodes[:40] {
		if s.core.agents[n.uid] == nil {
			t.Fatalf("agent %s is not silent and was forgotten", n.host)
		}
	}
	s.core.o.MaxAgents = 1000
	for who, want := range map[string]int{"node n1": 3, "token": 1} { // a node has one for each vendor
		taken := 0
		for i := range 5 {
			if a := s.core.report(&report{uid: UID{0: byte(len(who)), 15: byte(i)}, capabilities: takesLists, labels: map[string]string{"host.name": who}}, credential{name: who}, s.now); a.ErrorResponse == nil {
				taken++
			}
		}
		testkit.Equal(t, "agents of "+who, want, taken)
	}
	testkit.Equal(t, "a text for a terminal", "ab[2Jc", cut("a\nb\x1b[2J\tcd", 9))
}

// TestDuplicateUID: if two nodes use one uid, the server assigns the second node another one, always the same.
func TestDuplicateUID(t *testing.T) {
	s := newSim(t, 2, "    stages: [{percent: 100}]\n")
	a, b := s.nodes[0], s.nodes[1]
	b.uid = a.uid
	uid := b.uid
	s.run(2 * time.Minute)
	if a.uid != uid { // the later node gets another uid
		a, b = b, a
	}
	if a.uid != uid || b.uid == uid || len(s.core.agents) != 2 || testutil.ToFloat64(s.core.totals.duplicates) != 1 {
		t.Fatalf("uids %v and %v, %d agents", a.uid, b.uid, len(s.core.agents))
	}
	given := b.uid
	b.uid, b.told, b.sequence = uid, false, 0 // it restarts and loses its state
	s.run(time.Minute)
	testkit.ErrorIf(t, b.uid != given || len(s.core.agents) != 2, "uid %v, before %v, %d agents", b.uid, given, len(s.core.agents))
	s.until("both have the list", 10*time.Minute, func() bool { return s.with(listA) == 2 })
}

// TestWindow: sample seconds are a mean, missed ticks a rate from one minute on. A smaller count is of a new process.
func TestWindow(t *testing.T) {
	w, begin := newWindow(), time.Now()
	f := func(seconds float64, add, want Numbers) {
		t.Helper()
		now := begin.Add(time.Duration(seconds * float64(time.Second)))
		w.add(add, now)
		testkit.Equal(t, fmt.Sprintf("after %v s", seconds), want, w.numbers(now))
	}
	f(0, Numbers{sampleSeconds: 1, missedTicks: 10, series: 4}, Numbers{sampleSeconds: 1, series: 4})
	f(30, Numbers{sampleSeconds: 3, missedTicks: 15, series: 5}, Numbers{sampleSeconds: 2, series: 5})
	f(90, Numbers{missedTicks: 25}, Numbers{sampleSeconds: 2, missedTicks: 10})
	f(120, Numbers{missedTicks: 5}, Numbers{sampleSeconds: 2})
	f(180, Numbers{missedTicks: 5}, Numbers{sampleSeconds: 2, missedTicks: 0})
	f(240, Numbers{missedTicks: 9}, Numbers{sampleSeconds: 2, missedTicks: 2})
	w.restart(begin.Add(240 * time.Second))
	f(300, Numbers{missedTicks: 12}, Numbers{missedTicks: 3})
}

// TestLostMessage: after a lost message the server lacks what the next one omits, so it asks for the full state.
func TestLostMessage(t *testing.T) {
	s := newSim(t, 1, "")
	n := s.nodes[0]
	s.poll(n)
	if a := s.core.report(&report{uid: n.uid, sequence: n.sequence + 2, capabilities: takesLists}, credential{name: n.host}, s.now); a.Flags == 0 || a.RemoteConfig != nil || s.core.agents[n.uid].cohort == nil {
		t.Errorf("answer %v, want a request for all", a)
	}
	if a := s.core.report(&report{uid: UID{9}, sequence: 7, capabilities: takesLists}, credential{}, s.now); a.Flags == 0 {
		t.Errorf("answer %v, want a request for all", a)
	}
	if a := s.core.report(&report{uid: UID{9}, sequence: 7, leaving: true}, credential{}, s.now); a.Flags != 0 || len(s.core.agents) != 1 {
		t.Errorf("an unknown agent that leaves got %v", a)
	}
}
