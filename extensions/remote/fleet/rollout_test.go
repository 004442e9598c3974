package fleet

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"warpgauge/internal/testkit"
)

// TestChooseProperties: a stage never exceeds its percentage, keeps the agents of the previous stage, and another rollout chooses
// others.
func TestChooseProperties(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		var agents []*agent
		for i := range 1 + r.IntN(500) {
			agents = append(agents, &agent{uid: UID{byte(i), byte(i >> 8), byte(seed)}, labels: map[string]string{"rack": fmt.Sprint(i % 3)}})
		}
		members := map[UID]member{}
		for _, percent := range []float64{0.1 + r.Float64()*5, 6 + r.Float64()*40, 50, 99.9, 100} {
			added := choose(&Stage{Percent: percent}, members, agents)
			for _, a := range added {
				if _, twice := members[a.uid]; twice {
					t.Fatalf("seed %d: chosen twice", seed)
				}
				members[a.uid] = member{}
			}
			if n, most := len(members), max(1, int(percent*float64(len(agents))/100)); n > most {
				t.Fatalf("seed %d: %.1f%% of %d agents are %d, more than %d", seed, percent, len(agents), n, most)
			}
		}
		if len(members) != len(agents) {
			t.Fatalf("seed %d: 100%% are %d of %d", seed, len(members), len(agents))
		}
	}
	twenty, first := make([]*agent, 20), map[UID]bool{}
	for i := range twenty {
		twenty[i] = &agent{uid: UID{byte(i)}}
	}
	for range 1000 { // one of 20 stays unchosen with probability 0.95^1000
		first[choose(&Stage{Percent: 5}, nil, twenty)[0].uid] = true
	}
	testkit.Equal(t, "agents that were chosen first", len(twenty), len(first))
	labelled := choose(&Stage{Labels: map[string]string{"rack": "r1"}}, map[UID]member{{1}: {}}, []*agent{
		{uid: UID{1}, labels: map[string]string{"rack": "r1"}}, {uid: UID{2}, labels: map[string]string{"rack": "r1"}}, {uid: UID{3}, labels: map[string]string{"rack": "r2"}}, {uid: UID{4}},
	})
	testkit.ErrorIf(t, len(labelled) != 1 || labelled[0].uid != (UID{2}), "a stage of rack r1 adds %v", labelled)
}

// TestRolloutInStages: a harmless list reaches all nodes in stages, and no stage exceeds its size.
func TestRolloutInStages(t *testing.T) {
	s := newSim(t, 200, "").stable()
	s.offerList(listB)
	for _, want := range []int{2, 20, 200} {
		s.until(fmt.Sprintf("%d nodes have list B", want), 10*time.Minute, func() bool { return s.with(listB) >= want })
		if n := s.ever(listB); n != want {
			t.Fatalf("%d nodes were offered list B, want %d", n, want)
		}
		s.core.applyPlan(nil, errors.New("fleet.yaml: line 3"), s.now) // changes neither plan nor rollout
	}
	if f := s.core.fleet(s.now); f.Directory.Err != "fleet.yaml: line 3" || f.Directory.Hash == "" {
		t.Errorf("directory %+v", f.Directory)
	}
	s.until("done", 10*time.Minute, func() bool { return s.state() == Done })
	late := s.add(200)
	s.run(time.Minute)
	testkit.Equal(t, "list of a node that came later", hashOf(listB), late.list)
	for _, n := range s.nodes {
		testkit.Equal(t, "times that "+n.host+" got the list", 1, n.got[hashOf(listB)])
	}
	s.command("rollback")
	s.run(time.Minute)
	testkit.Equal(t, "nodes that are back", 201, s.with(listA))
	s.run(10 * time.Minute)
	testkit.ErrorIf(t, s.with(listB) != 0 || s.core.cohorts["all"].Rejected != hashOf(listB), "the list that an operator rolled back was tried again")
	s.command("rollout")
	s.until("tried again by command", 10*time.Minute, func() bool { return s.with(listB) > 0 })
}

// TestHarmStopsRollout: each kind of harm stops the rollout in its first stage and rolls the canaries back. No other node is
// touched.
func TestHarmStopsRollout(t *testing.T) {
	f := func(name string, handle func(*node, string) *listStatus, suffer func(*node), want string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSim(t, 300, "").stable()
			s.each(func(n *node) { n.handle, n.suffer = handle, suffer })
			s.offerList(listB)
			s.until("stopped", 20*time.Minute, func() bool { return s.state() == Stopped })
			testkit.Has(t, "it stopped because", s.rollout().Reason, want)
			s.each(func(n *node) { n.away = false })
			s.run(25 * time.Minute)
			testkit.Equal(t, "nodes that were offered the list", 3, s.ever(listB))
			testkit.Equal(t, "nodes that have the list before", 300, s.with(listA))
			if n := s.ever(listA); n > 3 {
				t.Errorf("%d nodes got the list before again, only the canaries should", n)
			}
			testkit.ErrorIf(t, s.state() != Stopped || s.ever(listB) != 3, "the list was tried again by itself")
		})
	}
	raise := func(gate string, by float64) func(*node) {
		return func(n *node) {
			if n.list == hashOf(listB) {
				n.numbers[gate] += by
			}
		}
	}
	bad := func(answer *listStatus) func(*node, string) *listStatus {
		return func(_ *node, hash string) *listStatus {
			if hash != hashOf(listB) {
				return &listStatus{hash: hash, state: applied}
			}
			return answer
		}
	}
	f("stalled", nil, stall, "stalled_devices: 8, before 0")
	f("lost", nil, raise(lost, 1), "lost_devices")
	f("slow", nil, raise(sampleSeconds, 3), "sample_seconds")
	f("missed ticks", nil, func(n *node) {
		if n.ticks = 0.03; n.list == hashOf(listB) {
			n.ticks = 6 // in 30 s
		}
	}, "missed_ticks")
	f("absent fields", nil, raise(absentFields, 65), "absent_fields")
	f("series", nil, raise(series, 501), "series: 1001, before 500")
	f("series_lost", nil, raise(series, -251), "series_lost: 249, before 500")
	f("refused", bad(&listStatus{hashOf(listB), failed, "line 2: not allowed"}), nil, "line 2: not allowed")
	f("withdrawn later", nil, func(n *node) {
		if n.trouble = ""; n.list == hashOf(listB) {
			n.trouble = "in service the list took too long; the former list is back"
		}
	}, "took too long")
	f("never acknowledged", bad(nil), nil, "not acknowledged")
	f("applies for ever", bad(&listStatus{hash: hashOf(listB), state: applying}), nil, "not applied the list in time")
	f("acknowledges another", bad(&listStatus{hash: hashOf("x"), state: applied}), nil, "not acknowledged")
	f("goes away", nil, func(n *node) { n.away = n.list == hashOf(listB) }, "not acknowledged the list in time")
}

// TestOneBadReport: two bad reports in a row can be a passing disturbance, and so can one agent of a hundred.
func TestOneBadReport(t *testing.T) {
	s := newSim(t, 100, "").stable()
	s.offerList(listB)
	s.until("a canary has it", 10*time.Minute, func() bool { return s.with(listB) > 0 })
	for _, n := range s.nodes {
		if n.list == hashOf(listB) {
			n.numbers[stalled] = 1
			s.poll(n)
			s.poll(n)
			n.numbers[stalled] = 0
			s.poll(n)
		}
	}
	s.until("done", time.Hour, func() bool { return s.state() == Done })
	if c := (&Counts{Members: 100, Refused: 1}); c.verdict(0.01) != "" || c.verdict(0.009) == "" {
		t.Errorf("1%% is tolerated: %q, 0.9%%: %q", c.verdict(0.01), c.verdict(0.009))
	}
}

// TestAgainAfterHarm: an operator can roll a rejected list out again, once the nodes are mended.
func TestAgainAfterHarm(t *testing.T) {
	s := newSim(t, 100, "    timeout: 1m\n    stages: [{percent: 1, soak: 2m}, {percent: 100, soak: 2m}]\n").stable()
	s.offerList(listB)
	s.until("a canary applied it", 20*time.Minute, func() bool { return s.rollout().Soaked > 0 })
	s.each(func(n *node) { n.away = n.list == hashOf(listB) })
	s.until("stopped", 20*time.Minute, func() bool { return s.state() == Stopped })
	if why := s.rollout().Reason; !strings.Contains(why, "it says nothing since") {
		t.Errorf("it stopped because %q", why)
	}
	s.each(func(n *node) { n.away = false })
	s.command("rollout") // with another canary: the former one was not seen yet
	s.until("done", 20*time.Minute, func() bool { return s.state() == Done })
}

// TestAgentsThatLeftTakeNoPart: a stage is a share of the present agents, without agents that said goodbye.
func TestAgentsThatLeftTakeNoPart(t *testing.T) {
	s := newSim(t, 200, "").stable()
	gone := map[UID]bool{}
	for _, n := range s.nodes[:100] {
		n.sequence++
		s.core.report(&report{uid: n.uid, sequence: n.sequence, capabilities: takesLists, leaving: true}, credential{name: n.host}, s.now)
		n.away, gone[n.uid] = true, true
	}
	s.offerList(listB)
	s.run(5 * time.Second)
	members := s.rollout().members
	if s.rollout().Stage != 1 || len(members) != 1 {
		t.Errorf("stage %d has %d agents, want 1 of the 100 that are there", s.rollout().Stage, len(members))
	}
	for uid := range members {
		testkit.ErrorIf(t, gone[uid], "%s takes part, but has left", uid)
	}
	left := s.nodes[0]
	if got, _ := s.core.condition(s.core.agents[left.uid], s.now); got != Silent {
		t.Errorf("an agent that left is %s", got)
	}
	left.told, left.sequence = false, 0 // it comes back
	s.poll(left)
	if got, _ := s.core.condition(s.core.agents[left.uid], s.now); got != Current || len(left.got) > 0 {
		t.Errorf("an agent that came back is %s, offers %v", got, left.got)
	}
}

// TestForgedAgents: one credential is for one agent, so one process cannot decide what other nodes run: not by 3,000 agents,
// by other nodes' uids, or by agents that come when a rollout has begun.
func TestForgedAgents(t *testing.T) {
	for _, shared := range []bool{false, true} {
		s, chosen := newSim(t, 20, "").stable(), map[UID]bool{}
		attack := func() (taken int) {
			for i := range 3000 {
				r := &report{uid: UID{0: 2, 14: byte(i >> 8), 15: byte(i)}, capabilities: takesLists, labels: map[string]string{"host.name": fmt.Sprint("forged-", i)}}
				if i < len(s.nodes) {
					r.uid = s.nodes[i].uid
				}
				if r.status = (&listStatus{hash: hashOf(listA), state: applied}); chosen[r.uid] {
					r.status.hash = hashOf(listB)
				}
				r.health = &health{healthy: true, numbers: Numbers{stalled: 0}}
				a := s.core.report(r, credential{"stolen", shared}, s.now)
				if a.RemoteConfig != nil && hex.EncodeToString(a.RemoteConfig.ConfigHash) == hashOf(listB) {
					chosen[r.uid] = true
				}
				if a.ErrorResponse == nil && a.AgentIdentification == nil {
					taken++
				}
			}
			return taken
		}
		if !shared {
			testkit.Equal(t, "forged agents that are taken", 1, attack())
		}
		s.each(func(n *node) { n.suffer = stall })
		s.offerList(listB)
		if shared { // after the list's change
			s.run(time.Second)
			testkit.Equal(t, "forged agents that are taken with a shared credential", 2980, attack())
		}
		s.until("stopped", time.Hour, func() bool { attack(); return s.state() == Stopped })
		if n := s.ever(listB); n > 2 || len(chosen) > 1 || shared && len(chosen) > 0 {
			t.Errorf("shared %v: %d of 20 nodes got the list that harms, and %d forged ones; 10%% are two", shared, n, len(chosen))
		}
	}
}

// TestKnownAgentsKeepTheirPlace: after a start, a flood of new agents with a shared credential keeps no known agent out.
func TestKnownAgentsKeepTheirPlace(t *testing.T) {
	s := newSim(t, 50, "").stable()
	s.run(time.Hour)
	s.o.MaxAgents = 60
	s.open()
	for i := range 1000 {
		r := &report{uid: UID{0: 2, 14: byte(i >> 8), 15: byte(i)}, capabilities: takesLists, labels: map[string]string{"host.name": fmt.Sprint("forged-", i)}}
		s.core.report(r, credential{"stolen", true}, s.now.Add(time.Duration(i)*time.Second))
	}
	s.each(func(n *node) { n.told = false })
	s.run(time.Minute)
	for _, n := range s.nodes {
		testkit.ErrorIf(t, s.core.agents[n.uid] == nil, "agent %s is kept out", n.host)
	}
}

// TestPauseFreezes: a paused rollout changes no node, whatever the nodes report.
func TestPauseFreezes(t *testing.T) {
	s := newSim(t, 200, "").stable()
	s.offerList(listB)
	s.until("some canaries have it", 10*time.Minute, func() bool { return s.with(listB) > 0 })
	canaries := s.ever(listB) // both, if they have asked in the same second
	s.command("pause")
	s.each(func(n *node) { n.suffer = stall; stall(n) })
	s.run(20 * time.Minute)
	s.open()
	s.run(20 * time.Minute)
	if n, m := s.with(listB), s.ever(listB); n != canaries || m != canaries || s.state() != Paused {
		t.Fatalf("%d nodes have the list, %d were offered it, state %s", n, m, s.state())
	}
	s.offerList(listC)
	s.run(time.Minute)
	if s.state() != Paused || s.ever(listC) != 0 {
		t.Fatal("another list in the directory has moved a paused rollout")
	}
	s.offerList(listB)
	s.each(func(n *node) { n.suffer, n.numbers[stalled] = nil, 0 })
	s.run(time.Minute)
	s.command("resume")
	s.run(30 * time.Second)
	testkit.ErrorIf(t, s.state() == Stopped && strings.Contains(s.rollout().Reason, "acknowledged"), "what was not offered during the pause counts as late")
	s.command("rollback")
	s.run(time.Minute)
	testkit.Equal(t, "nodes that have the list before", 200, s.with(listA))
}

// TestFirstRolloutReturns: the first list of a cohort replaces the nodes' local lists; a rollback withdraws it.
func TestFirstRolloutReturns(t *testing.T) {
	s := newSim(t, 200, "")
	s.offerList(listB)
	s.each(func(n *node) { n.suffer = stall })
	s.until("stopped", 20*time.Minute, func() bool { return s.state() == Stopped })
	s.open()
	s.run(2 * time.Minute)
	if s.with(listB) != 0 || s.with("") != 200 || s.ever("") != s.ever(listB) {
		t.Errorf("lists in service: B %d, their own %d; %d withdrawals, %d offers", s.with(listB), s.with(""), s.ever(""), s.ever(listB))
	}
}

// TestKilledServer: a killed server continues in its stage and touches no other node.
func TestKilledServer(t *testing.T) {
	s := newSim(t, 200, "").stable()
	s.offerList(listB)
	s.until("second stage", 20*time.Minute, func() bool { return s.rollout().Stage == 2 && s.rollout().Soaked > 90 })
	before := s.ever(listB)
	s.now = s.now.Add(-24 * time.Hour) // the clock also steps back
	s.open()
	r := s.rollout()
	if r.Stage != 2 || len(r.members) != 20 || r.Soaked < 60 || r.State != Running {
		t.Fatalf("after the start: stage %d, %d members, soaked %v s, %s", r.Stage, len(r.members), r.Soaked, r.State)
	}
	s.run(time.Minute)
	testkit.Equal(t, "nodes that were offered the list", before, s.ever(listB))
	s.until("done", 20*time.Minute, func() bool { return s.state() == Done })

	s.offerList(listC)
	s.until("canaries of C", 20*time.Minute, func() bool { return s.with(listC) == 2 })
	for _, n := range s.nodes {
		n.suffer = func(n *node) {
			if n.list == hashOf(listC) {
				n.numbers[lost] = 1
			}
		}
		n.suffer(n)
	}
	s.open() // the state has the numbers from before the change
	s.until("stopped", 20*time.Minute, func() bool { return s.state() == Stopped })
	s.run(time.Minute)
	testkit.Equal(t, "nodes that are back", 200, s.with(listB))
}

// TestAgentsAreNotSeenAtOnce: after a restart, agents have the full timeout of a stage, even if the warm-up is shorter.
func TestAgentsAreNotSeenAtOnce(t *testing.T) {
	s := newSim(t, 200, "").stable()
	s.offerList(listB)
	s.until("second stage", 20*time.Minute, func() bool { return s.rollout().Stage == 2 })
	s.o.Warmup = 0
	s.open()
	s.each(func(n *node) { n.away = true })
	s.run(2 * time.Minute)
	s.each(func(n *node) { n.away = false })
	s.until("done", 30*time.Minute, func() bool { return s.state() == Done })

	s.offerList(listC)
	s.run(time.Minute)
	s.open()
	s.each(func(n *node) { n.away = true })
	s.until("stopped", 20*time.Minute, func() bool { return s.state() == Stopped })
	testkit.Has(t, "it stopped because", s.rollout().Reason, "not seen since this server started")
}

// TestTwoRolloutsAtOnce: a new list in the directory replaces a running rollout. The replaced list is tried again later unless it
// was rejected.
func TestTwoRolloutsAtOnce(t *testing.T) {
	s := newSim(t, 200, "").stable()
	s.offerList(listB)
	s.until("canaries of B", 20*time.Minute, func() bool { return s.with(listB) == 2 })
	s.offerList(listC)
	s.until("C is done", time.Hour, func() bool { return s.core.cohorts["all"].Stable == hashOf(listC) })
	if s.ever(listB) != 2 || s.with(listC) != 200 || s.rollout().ID != 3 {
		t.Errorf("%d nodes were offered B, %d have C, rollout %d", s.ever(listB), s.with(listC), s.rollout().ID)
	}
	if err := s.core.command("all", "pause", "", s.now); err == nil {
		t.Error("a rollout that is done was paused")
	}
	s.offerList(listB)
	s.until("canaries of B", 20*time.Minute, func() bool { return s.with(listB) > 0 })
	s.offerList(listC)
	s.run(time.Minute)
	if s.with(listC) != 200 || s.state() != Stopped || s.core.cohorts["all"].Rejected != "" {
		t.Errorf("%d nodes have C, %s, rejected %q", s.with(listC), s.state(), s.core.cohorts["all"].Rejected)
	}
}

// TestStageByLabels: one stage selects by labels; another waits because it has no agents.
func TestStageByLabels(t *testing.T) {
	s := newSim(t, 40, "    stages: [{labels: {rack: r9}, soak: 1m}, {percent: 100, soak: 1m}]\n")
	s.run(10 * time.Minute)
	testkit.Equal(t, "nodes that were offered the list before the stage had any", 0, s.ever(listA))
	canary := s.add(40)
	canary.labels = map[string]string{"rack": "r9"}
	s.until("the canary has it", 10*time.Minute, func() bool { return canary.list == hashOf(listA) })
	testkit.Equal(t, "nodes that were offered the list", 1, s.ever(listA))
	s.until("done", 10*time.Minute, func() bool { return s.state() == Done })
}

// TestReportOnly: a report-only node is never a canary and stops no rollout.
func TestReportOnly(t *testing.T) {
	s := newSim(t, 50, "    stages: [{percent: 20, soak: 1m}, {percent: 100, soak: 1m}]\n")
	for i, n := range s.nodes {
		if i%5 == 0 {
			n.handle = func(_ *node, hash string) *listStatus {
				return &listStatus{hash: hash, state: failed, err: "not applied (--remote-config=report): it would be applied"}
			}
		}
	}
	var last Counts
	s.until("done", time.Hour, func() bool {
		if c := s.core.cohorts["all"].counts; c != nil {
			last = *c
		}
		return s.state() == Done
	})
	if n := s.with(listA); n != 40 || last.Members != 40 || last.Applied != 40 {
		t.Errorf("%d nodes have the list, want 40; counts %+v", n, last)
	}
	if got, all := s.core.fleet(s.now).Cohorts[0].Agents[Observed], s.core.find("all", Observed, s.now); got != 10 || len(all) != 10 || all[0].Cohort != "all" || all[0].Effective != noList {
		t.Errorf("%d agents only report, want 10: %+v", got, all)
	}
}

// TestRolloutProperties: in any order of events, nodes outside the stages never get the new list, stages keep
// their size, a paused rollout offers nothing, and a rollback reaches all.
func TestRolloutProperties(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 7))
			s := newSim(t, 100, "    timeout: 2m\n    tolerance: 100%\n    stages: [{percent: 5, soak: 1m}, {percent: 30, soak: 1m}, {percent: 100, soak: 10h}]\n")
			s.core.o.Warmup = 0
			s.run(30 * time.Second)
			s.until("stable", time.Minute*20, func() bool { return s.rollout().Final })
			s.core.cohorts["all"].Stable, s.core.cohorts["all"].Rollout = hashOf(listA), nil
			s.run(time.Minute)
			s.offerList(listB)
			most := map[int]int{0: 0, 1: 5, 2: 30, 3: 100}
			ever := 0
			for range 60 {
				paused := s.state() == Paused
				switch r.IntN(8) {
				case 0:
					_ = s.core.command("all", "pause", "", s.now)
				case 1, 2:
					_ = s.core.command("all", "resume", "", s.now)
				case 3:
					s.open()
					s.core.o.Warmup = 0
				case 4:
					n := s.nodes[r.IntN(len(s.nodes))]
					n.away = !n.away
				case 5:
					n := s.nodes[r.IntN(len(s.nodes))]
					n.told, n.sequence = false, 0 // it restarts
				}
				if paused = paused && s.state() == Paused; paused {
					ever = s.ever(listB)
				}
				s.run(time.Duration(r.IntN(40)) * time.Second)
				if s.state() == Stopped {
					break
				}
				if n := s.ever(listB); n > most[s.rollout().Stage] || paused && n != ever {
					t.Fatalf("%d nodes were offered the list in stage %d, paused %v (%d before)", n, s.rollout().Stage, paused, ever)
				}
				for _, n := range s.nodes {
					if _, member := s.rollout().members[n.uid]; !member && !s.rollout().Final && n.got[hashOf(listB)] > 0 {
						t.Fatalf("node %s is in no stage and was offered the list", n.host)
					}
				}
			}
			if s.state() != Stopped {
				s.command("rollback")
			}
			s.each(func(n *node) { n.away = false })
			s.run(2 * time.Minute)
			testkit.Equal(t, "nodes that are back", len(s.nodes), s.with(listA))
		})
	}
}
