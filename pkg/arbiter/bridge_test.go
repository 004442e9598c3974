package arbiter

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

func TestBridge(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	var g gaze
	const span, lag = 6 * time.Second, 1500 * time.Millisecond
	// from is a bridge whose newest row is of now.
	from := func() *bridge {
		was := []*view.Source{board("nvml", "a"), board("nvml", "b"), board("nvml", "gone")}
		sample(now.Add(-time.Second), was[0])
		sample(now, was[1])
		return newBridge(was, nil, now, span)
	}
	f := func(name string, a, b, at, lag time.Duration, want bool) {
		t.Helper()
		s := board("dcgm", "a", "b", "switch0")
		s.Ring.Append(now.UnixNano(), []int64{now.Add(a).UnixNano(), now.Add(b).UnixNano(), now.Add(time.Minute).UnixNano()}, nil)
		if got := from().passed([]*view.Source{s, {Devices: s.Devices}}, lag, now.Add(at), &g); got != want {
			t.Errorf("%s: passed is %v, want %v", name, got, want)
		}
	}
	f("rows as old as the bridge", 0, 0, time.Second, lag, false)
	f("rows that are newer by less than the lag", lag, lag, 2*time.Second, lag, false)
	f("one that is not there yet", lag+1, lag, 2*time.Second, lag, false)
	f("all newer", lag+1, lag+1, 2*time.Second, lag, true)
	f("one that hangs", lag+1, -time.Minute, 2*time.Second, lag, true)
	f("none that moves", -time.Minute, -time.Minute, 2*time.Second, lag, false)
	f("none that moves for long", -time.Minute, -time.Minute, span+1, lag, true)
	f("a row that came a moment after the look at the clock", 0, 0, -time.Millisecond, lag, false)
	f("values as new as their rows", 1, 1, time.Second, 0, true)
	f("a clock that was set back", 0, 0, -time.Hour, lag, true)
}

// Rows that are new by their stamps may hold what an engine has read long before:
// counters tell.
func TestBridgeWaitsForCounters(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	energy, replays, power := &field.Descriptor{ID: 156}, &field.Descriptor{ID: 202}, &field.Descriptor{ID: 155}
	list := field.List{Fields: []field.Field{
		{Desc: energy, Type: field.Counter}, {Desc: energy, Type: field.Gauge}, {Desc: replays, Type: field.Counter}, {Desc: power, Type: field.Gauge},
	}}
	link := []collector.Label{{Name: "link", Value: "1"}}
	// with is a source of GPUs a and b; cells are energy, replays of a link and power of a, energy of b.
	with := func(name string, at time.Time, b time.Duration, cells ...float64) *view.Source {
		s := board(name, "a", "b")
		s.Fields = list
		s.Columns = []collector.Column{
			{Device: 0, Field: energy.ID}, {Device: 0, Field: replays.ID, Labels: link}, {Device: 0, Field: power.ID}, {Device: 1, Field: energy.ID},
		}
		s.Ring = ring.Make(4, 2, len(s.Columns))
		s.Ring.Append(at.UnixNano(), []int64{at.UnixNano(), at.Add(b).UnixNano()}, cells)
		return s
	}
	const span, lag = 6 * time.Second, 350 * time.Millisecond
	nan := math.NaN()
	var g gaze
	f := func(name string, b, at time.Duration, want bool, cells ...float64) {
		t.Helper()
		bridge := newBridge([]*view.Source{with("nvml", now, 0, 1000, 5, 300, 7)}, nil, now, span)
		next := with("dcgm", now.Add(time.Second), b, cells...)
		next.Columns[0], next.Columns[3] = next.Columns[3], next.Columns[0] // each source has an order of its own
		if got := bridge.passed([]*view.Source{next}, lag, now.Add(at), &g); got != want {
			t.Errorf("%s: passed is %v, want %v", name, got, want)
		}
	}
	// cells are energy of b, replays and power of a, energy of a
	f("as far", 0, time.Second, true, 7, 5, 300, 1000)
	f("further, and a gauge that fell", 0, time.Second, true, 7, 6, 1, 1001)
	f("energy is behind", 0, time.Second, false, 7, 5, 300, 999)
	f("replays of a link are behind", 0, time.Second, false, 7, 4, 300, 1000)
	f("energy of the other is behind", 0, time.Second, false, 6, 5, 300, 1000)
	f("blank is not behind", 0, time.Second, true, 7, nan, 300, nan)
	f("behind, but one has waited long enough", 0, span+1, true, 7, 4, 300, 999)
	f("the other hangs", -time.Minute, time.Second, true, 7, 5, 300, 1000)
	f("what hangs is behind", -time.Minute, time.Second, true, 6, 5, 300, 1000)
}

// What stands on a bridge does not change, and what it does not know is shown
// beside it.
func TestBridgeIsFrozen(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	nvml, both, dcgm := board("nvml", "a"), board("nvml", "c"), []*view.Source{board("dcgm", "a", "b"), board("dcgm", "switch0")}
	sample(now, nvml, both)
	next := append(dcgm, both)
	b := newBridge([]*view.Source{nvml, both}, next, now, time.Minute)
	sample(now.Add(time.Second), nvml)
	shown := b.over(next)
	if got := names(shown); got != "nvml:a dcgm:switch0 nvml:c" {
		t.Errorf("shown is %q", got)
	}
	var row ring.Row
	if !shown[0].Ring.Latest(&row) || row.Stamps[0] != now.UnixNano() {
		t.Errorf("the row is of %v, want %v", row.Stamps, now.UnixNano())
	}
	if b := newBridge(next, next, now, time.Minute); b != nil {
		t.Errorf("a bridge where nothing goes: %q", names(b.sources))
	}
}

// A release and a page for somebody who reads one only do not wait for rows.
func TestBridgeEndsAtOnce(t *testing.T) {
	for name, end := range map[string]func(*Arbiter){"Release": (*Arbiter).Release, "Settle": (*Arbiter).Settle} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.a.Secondary(&view.View{Sources: r.nvml})
				r.pass(2*time.Second, onlyNVML)
				sample(time.Now(), append(r.nvml, r.dcgm...)...)
				r.a.Primary(&view.View{Sources: r.dcgm})
				r.want("dcgm", false, "nvml:a nvml:b", viewBridge)
				end(r.a)
				r.want("dcgm", false, viewDCGM)
			})
		})
	}
}
