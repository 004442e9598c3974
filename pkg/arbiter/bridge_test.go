package arbiter

import (
	"testing"
	"testing/synctest"
	"time"

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
