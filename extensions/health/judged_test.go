package health

import (
	"testing"
	"time"

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
	hot := n.o.Rules.find("hot", 0)
	if hot.For != time.Minute || hot.Threshold != 95 {
		t.Fatalf("the rule is %+v", hot)
	}
	temperature := func(celsius float64, ticks int, want events.State) {
		t.Helper()
		n.rows[0][0] = celsius
		for range ticks {
			n.tick(time.Second)
		}
		reason := ""
		if want != events.OK {
			reason = "hot"
		}
		n.want("GPU-a", want, reason)
	}
	temperature(60, 2, events.OK)
	temperature(96, 59, events.OK)
	temperature(60, 1, events.OK) // interrupts the duration
	temperature(96, 60, events.OK)
	temperature(96, 1, events.Degraded)
	if since := n.of("GPU-a").Since; !since.Equal(n.now.Add(-time.Minute)) {
		t.Errorf("since %v, want a minute before %v", since, n.now)
	}
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
		n.tick(time.Second)
		n.tick(time.Second)
		if v := n.of(d.ID); v.Collector != "test" || v.Reason != "lost" {
			t.Errorf("with %s first: the verdict of %s is %q, want that of the supplier, lost", order[0].Name, v.Collector, v.Reason)
		}
	}
	n.view = view.View{} // no supplier: the collector that has it up decides
	n.restart(Options{})
	n.Sync(n.now.Add(time.Second))
	if v := n.of(d.ID); v.Collector != "other" {
		t.Errorf("without values the verdict is that of %s, want other", v.Collector)
	}
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
	o := Options{Rules: rule, Directory: t.TempDir()}
	n := newNode(t, 1, o, rule[0].Readings[0])
	links := func(up float64, want string) {
		t.Helper()
		n.rows[0][0] = up
		n.tick(time.Second)
		n.tick(time.Second)
		if v := n.of("GPU-a"); v.Reason != want {
			t.Errorf("link up is %v: the verdict is %q, want %q", up, v.Reason, want)
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
	grow := func(by float64, want string) {
		t.Helper()
		n.rows[0][0] += by
		n.tick(time.Second)
		if v := n.of("GPU-a"); v.Reason != want {
			t.Errorf("after %v errors the verdict is %q, want %q", n.rows[0][0], v.Reason, want)
		}
	}
	grow(0, "")
	grow(4000, "")
	next := *n.view.Sources[0]
	next.Ring = ring.Make(16, 1, 1)
	next.Ring.Append(n.now.UnixNano(), []int64{n.now.UnixNano()}, n.rows[0])
	n.view.Sources[0] = &next
	n.board.Store(&view.View{Version: 2, Sources: n.view.Sources})
	grow(1900, "")
	grow(100, "nvlink_crc_errors")
}

// TestNotReported: a device that no collector reports is missing only if a collector in service cannot find it.
func TestNotReported(t *testing.T) {
	for name, c := range map[string]struct {
		status session.CollectorStatus
		after  time.Duration
		state  events.State
		reason string // "forgotten": there is no verdict
	}{
		"in service":     {session.CollectorStatus{Name: "test", Up: true}, MissingFor + time.Second, events.Failed, ReasonMissing},
		"not yet":        {session.CollectorStatus{Name: "test", Up: true}, MissingFor - time.Second, events.OK, ""},
		"standby":        {session.CollectorStatus{Name: "test", Cause: session.CauseStandby}, MissingFor + time.Second, events.Failed, ReasonMissing},
		"released":       {session.CollectorStatus{Name: "test", Cause: session.CauseReleased}, time.Second, events.Unknown, "released"},
		"cannot open":    {session.CollectorStatus{Name: "test", Cause: session.CauseError}, 31 * time.Second, events.Unknown, "not_served"},
		"opening":        {session.CollectorStatus{Name: "test", Cause: session.CauseOpening}, 31 * time.Second, events.Unknown, "starting"},
		"collector off":  {session.CollectorStatus{Name: "other", Up: true}, time.Second, 0, "forgotten"},
		"for eight days": {session.CollectorStatus{Name: "test", Up: true}, 8 * 24 * time.Hour, 0, "forgotten"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, 1, Options{}, field.GPUTemperature)
			n.tick(time.Second)
			n.tick(time.Second)
			n.want("GPU-a", events.OK, "")
			n.status, n.view = []session.CollectorStatus{c.status}, view.View{}
			n.board.Store(&view.View{Version: 2})
			n.tick(time.Millisecond)
			n.tick(c.after)
			if v := n.of("GPU-a"); c.reason == "forgotten" {
				if v.Text != "not there" {
					t.Errorf("the verdict is %v %q, want none", v.State, v.Reason)
				}
				return
			}
			n.want("GPU-a", c.state, c.reason)
		})
	}
	// A GPU that was only a number until it answered has no verdict afterwards.
	n := newNode(t, 1, Options{}, field.GPUTemperature)
	n.status[0].Devices[0] = session.DeviceStatus{Device: collector.Device{ID: "nvml0", Level: field.GPU}, State: session.Stalled}
	n.tick(time.Second)
	n.want("nvml0", events.Unknown, ruleStalled)
	n.status[0].Devices = nil
	if n.tick(time.Second); n.of("nvml0").Text != "not there" {
		t.Errorf("the verdict is %v", n.of("nvml0"))
	}
}
