package fleet

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"maps"
	"path/filepath"
	"testing"
	"time"

	"github.com/open-telemetry/opamp-go/protobufs"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/extensions/remote/opamp"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/file"
)

var must = testkit.Must

const (
	applied  = protobufs.RemoteConfigStatuses_RemoteConfigStatuses_APPLIED
	applying = protobufs.RemoteConfigStatuses_RemoteConfigStatuses_APPLYING
	failed   = protobufs.RemoteConfigStatuses_RemoteConfigStatuses_FAILED

	stalled       = opamp.GateStalled
	lost          = opamp.GateLost
	sampleSeconds = opamp.GateSampleSeconds
	missedTicks   = opamp.GateMissedTicks
	absentFields  = opamp.GateAbsentFields
	series        = opamp.GateSeries

	takesLists = uint64(protobufs.AgentCapabilities_AgentCapabilities_ReportsStatus | protobufs.AgentCapabilities_AgentCapabilities_AcceptsRemoteConfig)
)

// node is a simulated agent.
type node struct {
	uid      UID
	host     string
	labels   map[string]string
	sequence uint64
	told     bool // the server has its full state
	away     bool

	list    string // hash of the server's list in service, or noList
	answer  *listStatus
	numbers Numbers
	ticks   float64        // missed between two reports
	trouble string         // error of the list
	got     map[string]int // number of offers by hash

	// handle applies a list and returns its status; nil applies every list.
	handle func(n *node, hash string) *listStatus
	// suffer changes the numbers while a list is in service; nil changes nothing.
	suffer func(n *node)
}

// sim is a fleet without a network: a core with its store and clock, and the nodes.
type sim struct {
	t     *testing.T
	dir   string // state directory
	o     Options
	core  *core
	now   time.Time
	nodes []*node
	lists map[string]string // files of the directory: content by name
	yaml  string
}

func newSim(t *testing.T, nodes int, policy string) *sim {
	t.Helper()
	s := &sim{t: t, dir: filepath.Join(t.TempDir(), "state"), now: time.Now(), lists: map[string]string{"a.csv": listA}}
	s.o = Options{Log: zap.NewNop(), MaxAgents: 20_000, Warmup: time.Minute}
	s.yaml = "version: 1\ncohorts:\n- name: all\n  list: a.csv\n  rollout:\n" + cmp.Or(policy, "    stages: [{percent: 1, soak: 2m}, {percent: 10, soak: 2m}, {percent: 100, soak: 2m}]\n")
	for i := range nodes {
		s.add(i)
	}
	s.open()
	return s
}

func (s *sim) add(i int) *node {
	n := &node{
		uid: UID{0: 1, 12: byte(i >> 16), 13: byte(i >> 8), 14: byte(i), 15: 7}, host: fmt.Sprintf("node-%05d", i), labels: map[string]string{"rack": fmt.Sprintf("r%d", i%4)},
		got: map[string]int{}, ticks: 0.03, list: noList,
	}
	n.numbers = Numbers{stalled: 0, lost: 0, sampleSeconds: 0.01, missedTicks: float64(1000 * i), absentFields: 3, series: 500}
	s.nodes = append(s.nodes, n)
	return n
}

const (
	listA = "DCGM_FI_DEV_GPU_TEMP, gauge, temperature\n"
	listB = "DCGM_FI_DEV_GPU_TEMP, gauge, temperature\nDCGM_FI_DEV_POWER_USAGE, gauge, power\n"
	listC = "DCGM_FI_DEV_POWER_USAGE, gauge, power\n"
)

func hashOf(text string) string { return newList("", []byte(text)).Hash }

// open starts the server; a running one counts as killed.
func (s *sim) open() {
	s.t.Helper()
	if s.core != nil {
		_ = s.core.store.lock.Close()
	}
	st, state, err := openStore(file.Private{Path: s.dir, Of: "the state"})
	must(s.t, err)
	s.t.Cleanup(func() { _ = st.lock.Close() })
	s.core = newCore(s.o, newTotals(prometheus.NewRegistry()), st, state, s.now)
	s.take()
}

// take makes the server read the directory.
func (s *sim) take() {
	s.t.Helper()
	s.lists[FleetFile] = s.yaml
	p := testkit.Get(ReadDirectory(writeDirectory(s.t, s.lists), nil))(s.t)
	s.core.applyPlan(p, nil, s.now)
}

// offerList puts a new list into the directory.
func (s *sim) offerList(text string) {
	s.t.Helper()
	s.lists["a.csv"] = text
	s.take()
}

// poll sends one report of a node.
func (s *sim) poll(n *node) {
	n.sequence++
	n.numbers[missedTicks] += n.ticks
	r := &report{uid: n.uid, sequence: n.sequence, capabilities: takesLists, status: n.answer}
	r.health = &health{healthy: true, numbers: maps.Clone(n.numbers), listErr: n.trouble}
	if !n.told {
		r.labels = maps.Clone(n.labels)
		r.labels["host.name"] = n.host
		r.effective, n.told = n.list, true
	}
	a := s.core.report(r, credential{name: n.host}, s.now)
	if id := a.AgentIdentification; id != nil {
		n.uid, n.told = UID(id.NewInstanceUid), false
	}
	if a.Flags != 0 {
		n.told = false
		s.poll(n)
		return
	}
	if a.RemoteConfig == nil {
		return
	}
	hash := hex.EncodeToString(a.RemoteConfig.ConfigHash)
	body := a.RemoteConfig.Config.ConfigMap[opamp.ConfigName].GetBody()
	testkit.Equal(s.t, "hash of the list in an offer", hash, hashOf(string(body)))
	n.got[hash]++
	n.answer = &listStatus{hash: hash, state: applied}
	if n.handle != nil {
		n.answer = n.handle(n, hash)
	}
	if n.answer != nil && n.answer.state == applied {
		n.list = hash
	}
	if n.suffer != nil {
		n.suffer(n)
	}
}

// run lets time pass: nodes poll every 30 s, and the server ticks every second.
func (s *sim) run(d time.Duration) {
	for end := s.now.Add(d); s.now.Before(end); {
		s.now = s.now.Add(time.Second)
		s.core.tick(s.now)
		for i, n := range s.nodes {
			if !n.away && (s.now.Unix()+int64(i))%30 == 0 {
				s.poll(n)
			}
		}
	}
}

func (s *sim) until(what string, most time.Duration, done func() bool) {
	s.t.Helper()
	for end := s.now.Add(most); !done(); {
		if s.now.After(end) {
			s.t.Fatalf("not within %v: %s; rollout %+v, counts %+v", most, what, s.rollout(), s.core.cohorts["all"].counts)
		}
		s.run(time.Second)
	}
}

func (s *sim) rollout() *Rollout { return s.core.cohorts["all"].Rollout }

func (s *sim) state() State {
	if r := s.rollout(); r != nil {
		return r.State
	}
	return ""
}

// with returns the number of nodes that serve a list.
func (s *sim) with(text string) int {
	return s.count(func(n *node) bool { return n.list == hashOf(text) })
}

// ever returns the number of nodes that were ever offered a list.
func (s *sim) ever(text string) int {
	return s.count(func(n *node) bool { return n.got[hashOf(text)] > 0 })
}

func (s *sim) count(is func(*node) bool) (n int) {
	for _, node := range s.nodes {
		if is(node) {
			n++
		}
	}
	return n
}

// stable rolls list A out to all nodes.
func (s *sim) stable() *sim {
	s.t.Helper()
	s.until("list A is stable", time.Hour, func() bool { return s.core.cohorts["all"].Stable == hashOf(listA) })
	testkit.Equal(s.t, "nodes that have list A", len(s.nodes), s.with(listA))
	s.each(func(n *node) { n.got = map[string]int{} })
	return s
}

func (s *sim) each(f func(*node)) {
	for _, n := range s.nodes {
		f(n)
	}
}

func (s *sim) command(verb string) {
	s.t.Helper()
	must(s.t, s.core.command("all", verb, "test", s.now))
}

func stall(n *node) {
	n.numbers[stalled] = 0
	if n.list == hashOf(listB) {
		n.numbers[stalled] = 8
	}
}
