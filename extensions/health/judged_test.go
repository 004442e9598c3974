package health

import (
	"fmt"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// TestForIsWaited: a rule with a duration becomes active when its reading has held that long
// without a break.
func TestForIsWaited(t *testing.T) {
	n := newNode(t, 1, Options{}, field.GPUTemperature)
	hot := n.o.Rules.find("hot")
	if hot.For != time.Minute || hot.Threshold != 95 {
		t.Fatalf("the rule is %+v", hot)
	}
	n.step(60, 2, time.Second, events.OK, "")
	n.step(96, 59, time.Second, events.OK, "")
	n.step(60, 1, time.Second, events.OK, "") // interrupts the duration
	n.step(96, 60, time.Second, events.OK, "")
	n.step(96, 1, time.Second, events.Degraded, "hot")
	testkit.Equal(t, "since", n.now.Add(-time.Minute), n.of("GPU-a").Since)
}

// TestLimitOfTheBoard: the board's own limit replaces the rule's threshold where it has a value, unless an operator sets one.
func TestLimitOfTheBoard(t *testing.T) {
	f := func(rules []string, temperature, limit float64, want string) {
		t.Helper()
		table := testkit.Get(Select(rules))(t)
		n := newNode(t, 1, Options{Rules: table}, field.GPUTemperature, field.SlowdownTemperature)
		n.rows[0][1] = limit
		n.step(temperature, 60, time.Second, events.OK, "")
		n.rows[0][0] = temperature
		n.tick(time.Second)
		testkit.Equal(t, fmt.Sprintf("%v degrees, limit %v, rules %v", temperature, limit, rules), want, n.of("GPU-a").Reason)
	}
	f(nil, 90, 89, "hot")
	f(nil, 90, 105, "")
	f(nil, 96, 105, "")
	f(nil, 96, blank, "hot")
	f(nil, 94, 0, "")
	f([]string{"hot=80"}, 81, 89, "hot")
}

// TestTheSupplierCounts: if two collectors report a device, the one that supplies its values
// decides, even if only the other has the device up.
func TestTheSupplierCounts(t *testing.T) {
	n := newNode(t, 1, Options{}, field.GPUTemperature)
	d := n.status[0].Devices[0].Device
	other := session.CollectorStatus{Name: "other", Up: true, Devices: []session.DeviceStatus{{Device: d, State: session.Up}}}
	for _, order := range [][]session.CollectorStatus{{n.status[0], other}, {other, n.status[0]}} {
		order[0].Devices, order[1].Devices = append([]session.DeviceStatus{}, order[0].Devices...), append([]session.DeviceStatus{}, order[1].Devices...)
		for i := range order {
			if order[i].Name == "test" {
				order[i].Devices[0].State = session.Lost
			}
		}
		n.status = order
		n.restart(Options{})
		n.ticks(2, time.Second)
		if v := n.of(d.ID); v.Collector != "test" || v.Reason != "lost" {
			t.Errorf("with %s first: the verdict of %s is %q, want that of the supplier, lost", order[0].Name, v.Collector, v.Reason)
		}
	}
	n.view = view.View{} // no supplier: the collector that has it up decides
	n.restart(Options{})
	n.Sync(n.now.Add(time.Second))
	testkit.Equal(t, "without values the verdict is that of", "other", n.of(d.ID).Collector)
}

// TestLinkThatNeverWasUp: a port without a cable is not a fault. A link that went down is a fault,
// also after a restart.
func TestLinkThatNeverWasUp(t *testing.T) {
	rule := Rules{}
	for _, r := range Table() {
		if r.Test == field.Falls {
			rule = append(rule, r)
		}
	}
	o := Options{Rules: rule, Store: NewStore(t.TempDir())}
	n := newNode(t, 1, o, rule[0].Readings[0])
	links := func(up float64, want string) {
		t.Helper()
		n.rows[0][0] = up
		n.ticks(2, time.Second)
		if v := n.of("GPU-a"); v.Reason != want || want != "" && !v.Conditions[0].Last.Equal(n.now) {
			t.Errorf("link up is %v: the verdict is %q, want %q until now: %+v", up, v.Reason, want, v.Conditions)
		}
	}
	links(0, "")
	links(1, "")
	links(0, rule[0].Name)
	files := n.open(n.now)
	files.saved = n.now
	n.unsaved = true
	n.save(files, n.now, true)
	n.write(files)
	n.restart(o)
	n.open(n.now)
	links(0, rule[0].Name) // the earlier process saw it up
}

// TestGrowthOverSessions: a counter's growth in two sessions adds up, and overlapping rows count once.
func TestGrowthOverSessions(t *testing.T) {
	n := newNode(t, 1, Options{}, field.NVLinksFlitErrors)
	n.step(0, 1, time.Second, events.OK, "")
	n.step(4000, 1, time.Second, events.OK, "")
	next := *n.view.Sources[0]
	next.Ring = ring.Make(16, 1, 1)
	next.Ring.Append(n.now.UnixNano(), []int64{n.now.UnixNano()}, n.rows[0])
	n.view.Sources[0] = &next
	n.board.Store(&view.View{Version: 2, Sources: n.view.Sources})
	n.step(5900, 1, time.Second, events.OK, "")
	n.step(6000, 1, time.Second, events.Failed, "nvlink_crc_errors")
	n.step(6000, 599, time.Second, events.Failed, "nvlink_crc_errors") // these errors count once
	n.step(6000, 1, time.Second, events.OK, "")
}

// TestStates: a device's state decides its verdict. A device that no collector reports is missing only if a collector in
// service cannot find it.
func TestStates(t *testing.T) {
	reported := func(s session.State, c session.Cause) session.CollectorStatus {
		d := collector.Device{ID: "GPU-a", Level: field.GPU, GPU: "0"}
		return session.CollectorStatus{Name: "test", Up: true, Devices: []session.DeviceStatus{{Device: d, State: s, Cause: c}}}
	}
	both := func(c session.Cause) session.CollectorStatus {
		out := reported(session.Stalled, c)
		out.Devices = append(out.Devices, session.DeviceStatus{Device: collector.Device{ID: "GPU-b", Level: field.GPU, GPU: "1"}, State: session.Stalled, Cause: c})
		return out
	}
	for name, c := range map[string]struct {
		status session.CollectorStatus
		after  time.Duration
		state  events.State
		reason string // "forgotten": there is no verdict
	}{
		"starting":       {reported(session.Stalled, session.CauseStarting), 31 * time.Second, events.Unknown, "starting"},
		"hung":           {reported(session.Stalled, session.CauseHung), time.Second, events.Failed, "hung"},
		"all hung":       {both(session.CauseHung), time.Second, events.Failed, "hung"},
		"engine hung":    {both(session.CauseBlocked), 4 * time.Second, events.Unknown, ruleStalled},
		"one call hangs": {reported(session.Stalled, session.CauseOneCall), time.Second, events.Degraded, "call_hangs"},
		"lost":           {reported(session.Lost, session.CauseLost), time.Second, events.Failed, "lost"},
		"absent":         {reported(session.Absent, session.CauseVanished), MissingFor + time.Second, events.Failed, ReasonMissing},
		"free":           {reported(session.Released, session.CauseReleased), time.Second, events.Unknown, "released"},
		"in service":     {session.CollectorStatus{Name: "test", Up: true}, MissingFor + time.Second, events.Failed, ReasonMissing},
		"not yet":        {session.CollectorStatus{Name: "test", Up: true}, MissingFor - time.Second, events.Unknown, ruleStalled},
		"calls fail":     {reported(session.Stalled, session.CauseError), 5 * time.Minute, events.Degraded, ruleFails},
		"stale":          {reported(session.Stalled, session.CauseFrozen), time.Hour, events.Unknown, ruleStalled},
		"standby":        {session.CollectorStatus{Name: "test", Cause: session.CauseStandby}, MissingFor + time.Second, events.Failed, ReasonMissing},
		"released":       {session.CollectorStatus{Name: "test", Cause: session.CauseReleased}, time.Second, events.Unknown, "released"},
		"cannot open":    {session.CollectorStatus{Name: "test", Cause: session.CauseError}, 31 * time.Second, events.Unknown, "not_served"},
		"opening":        {session.CollectorStatus{Name: "test", Cause: session.CauseOpening}, 31 * time.Second, events.Unknown, "starting"},
		"collector off":  {session.CollectorStatus{Name: "other", Up: true}, time.Second, 0, "forgotten"},
		"for eight days": {session.CollectorStatus{Name: "test", Up: true}, 8 * 24 * time.Hour, 0, "forgotten"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, 1, Options{}, field.GPUTemperature)
			n.after(2, time.Second, "GPU-a", events.OK, "")
			before := n.status
			n.status, n.view = []session.CollectorStatus{c.status}, view.View{}
			n.board.Store(&view.View{Version: 2})
			n.tick(time.Millisecond)
			n.tick(c.after / 2)
			n.tick(c.after / 2)
			if v := n.of("GPU-a"); c.reason == "forgotten" {
				testkit.Equal(t, "the verdict is", "not there", v.Text)
				n.status = before
				n.after(1, time.Second, "GPU-a", events.OK, "")
				return
			}
			n.want("GPU-a", c.state, c.reason)
		})
	}
	// A lost GPU stays failed when it is absent afterwards.
	n := newNode(t, 1, Options{}, field.GPUTemperature)
	n.step(60, 2, time.Second, events.OK, "")
	d := &n.status[0].Devices[0]
	d.State, d.Cause = session.Lost, session.CauseLost
	n.step(60, 1, time.Second, events.Failed, "lost")
	d.State, d.Cause = session.Absent, session.CauseVanished
	n.step(60, 130, time.Second, events.Failed, "lost")
	d.State, d.Cause = session.Up, ""
	n.step(60, 62, time.Second, events.OK, "")
	// A hung GPU stays failed while another process starts, until it answers.
	n = newNode(t, 1, Options{}, field.GPUTemperature)
	n.step(60, 2, time.Second, events.OK, "")
	d = &n.status[0].Devices[0]
	d.State, d.Cause = session.Stalled, session.CauseHung
	n.step(60, 1, time.Second, events.Failed, "hung")
	for _, d.Cause = range []session.Cause{session.CauseChild, session.CauseStarting} {
		n.step(60, 70, time.Second, events.Failed, "hung")
	}
	d.State, d.Cause = session.Up, ""
	n.step(60, 62, time.Second, events.OK, "")
	// That a GPU has no values weighs more than what may wait, and what only the log says counts then.
	n = newNode(t, 1, Options{}, remapPending)
	n.step(1, 2, time.Second, events.Degraded, "row_remap_pending")
	n.Observe(Observation{Reason: ReasonXID, Code: 79, Device: "GPU-a", Time: n.now, Source: SourceKernelLog, Text: "Xid"})
	n.step(1, 1, time.Second, events.Degraded, "row_remap_pending")
	d = &n.status[0].Devices[0]
	d.State, d.Cause = session.Stalled, session.CauseFrozen
	n.step(1, 5, time.Second, events.Unknown, ruleStalled)
	n.step(1, 310, time.Second, events.Failed, "xid_79")
	// A GPU that was only a number until it answered has no verdict afterwards.
	n = newNode(t, 1, Options{}, field.GPUTemperature)
	n.status[0].Devices[0] = session.DeviceStatus{Device: collector.Device{ID: "nvml0", Level: field.GPU}, State: session.Stalled}
	n.tick(time.Second)
	n.after(1, 3*time.Second, "nvml0", events.Unknown, ruleStalled)
	n.status[0].Devices = nil
	n.tick(time.Second)
	testkit.Equal(t, "the verdict is", "not there", n.of("nvml0").Text)
}

// TestOddEnergy: a reading without energy is no reset; one far below the last is.
func TestOddEnergy(t *testing.T) {
	n := newNode(t, 1, Options{}, field.TotalEnergy)
	n.step(1e9, 2, time.Second, events.OK, "")
	n.Observe(Observation{Reason: ReasonXID, Code: 48, Device: "GPU-a", Time: n.now, Source: "test"})
	for _, v := range []float64{1e9, 0, blank, 1e9, 0} {
		n.step(v, 1, time.Second, events.Failed, "xid_48")
	}
	n.step(1e3, 1, time.Second, events.OK, "")
	// What was observed since the last energy may be later than the reset.
	n.step(1e9, 1, time.Second, events.OK, "")
	n.Observe(Observation{Reason: ReasonXID, Code: 48, Device: "GPU-a", Time: n.now.Add(time.Second / 2), Source: "test"})
	n.step(1e3, 5, time.Second, events.Failed, "xid_48")
	n.step(1, 1, time.Second, events.OK, "")
	// A reset brings a GPU back that no longer answered, whatever was observed until then.
	n.step(1e9, 1, time.Second, events.OK, "")
	n.status[0].Devices[0].State = session.Stalled
	n.tick(time.Minute)
	n.Observe(Observation{Reason: ReasonXID, Code: 48, Device: "GPU-a", Time: n.now, Source: "test"})
	n.step(1e9, 2, time.Second, events.Failed, "xid_48")
	n.status[0].Devices[0].State = session.Up
	n.step(1e3, 2, time.Second, events.OK, "")
}

// TestEvidence: the evidence has the newest texts, a minute apart. A repeated text renews its time.
func TestEvidence(t *testing.T) {
	n := newNode(t, 1, Options{}, remapPending)
	for v := 1; v < 7; v++ {
		n.step(float64(v)+0.25, 61, time.Second, events.Degraded, "row_remap_pending")
		got := n.devices[0].conditions[0].evidence
		for i, e := range got {
			v := v - len(got) + 1 + i
			want := events.Evidence{Time: start.Add(time.Duration(60*v+1) * time.Second), Source: "test", Text: fmt.Sprint("DCGM_FI_DEV_ROW_REMAP_PENDING is ", float64(v)+0.25)}
			testkit.Equal(t, fmt.Sprint("evidence ", i), want, e)
		}
		if len(got) != min(v, maxEvidence) || !n.of("GPU-a").Since.Equal(start.Add(time.Second)) {
			t.Errorf("%d pieces of evidence since %v", len(got), n.of("GPU-a").Since)
		}
	}
	for level, want := range map[field.Level]string{field.Link: "DCGM_FI_DEV_ROW_REMAP_PENDING link=3 peer=x", field.GPU: "DCGM_FI_DEV_ROW_REMAP_PENDING peer=x"} {
		d := collector.Device{Level: level, Labels: []collector.Label{{Name: "link", Value: "3"}}}
		testkit.Equal(t, "the reading's name", want, nameOf(&d, &collector.Column{Field: remapPending, Labels: []collector.Label{{Name: "peer", Value: "x"}}}))
	}
}

// slowed has the seconds with clocks held down.
type slowed map[string]float64

func (slowed) Update(time.Time)                               {}
func (s slowed) Value(device string, _ field.Derived) float64 { return s[device] }
func (slowed) Evidence(device string, _ field.Derived) string { return "clocks of " + device }

// TestDerived: a derived reading decides its rule, with its own explanation as evidence.
func TestDerived(t *testing.T) {
	n := newNode(t, 2, Options{Derived: slowed{"GPU-b": 900}, Rules: Rules{*Table().find("throttled")}}, remapPending)
	n.step(1, 62, time.Second, events.OK, "")
	n.want("GPU-b", events.Degraded, "throttled")
	if e := n.of("GPU-b").Conditions[0].Evidence; len(e) != 1 || e[0].Source != "early signs" || e[0].Text != "clocks of GPU-b" {
		t.Errorf("evidence %+v", e)
	}
}
