package exposition

import (
	"fmt"
	"math"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

// TestFreshness checks which stamps, relative to now, put a device on the page. A device that is read slowly has three
// intervals, also next to one that is read each second.
func TestFreshness(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	src := &view.Source{
		Devices: []collector.Device{{ID: "GPU-a"}, {ID: "link"}}, Ring: ring.Make(2, 2, 0),
		Interval: time.Second, Every: []time.Duration{time.Second, time.Minute},
	}
	f := func(stamp int64, want, slow bool) {
		t.Helper()
		src.Ring.Append(now.UnixNano(), []int64{stamp, stamp}, nil)
		var s snapshot
		s.capture(&view.View{Version: 1, Sources: []*view.Source{src}}, 30*time.Second, now)
		testkit.Equal(t, fmt.Sprintf("stamp %d s from now: fresh", (stamp-now.UnixNano())/int64(time.Second)), []bool{want, slow}, s.live[:2])
	}
	at := func(d time.Duration) int64 { return now.Add(d).UnixNano() }
	f(0, false, false)
	f(at(0), true, true)
	f(at(-29*time.Second), true, true)
	f(at(-30*time.Second), false, true)
	f(at(-179*time.Second), false, true)
	f(at(-181*time.Second), false, false)
	f(at(time.Second), true, true) // the clock was set back a little
	f(at(time.Hour), false, false)
	f(math.MaxInt64, false, false)
	f(math.MinInt64, false, false)
	f(-1, false, false)
}

// TestXIDsStay: the last XID of a device is shown while the device is stale, and in a new session that has not seen it.
func TestXIDsStay(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	view1 := func(version uint64, stamp int64, xid float64) *view.View {
		src := &view.Source{
			Devices: []collector.Device{{ID: "GPU-a"}}, Ring: ring.Make(2, 1, 1),
			Columns: []collector.Column{{Field: field.XIDErrors}},
		}
		if version > 0 {
			src.Ring.Append(now.UnixNano(), []int64{stamp}, []float64{xid})
		}
		return &view.View{Version: version, Sources: []*view.Source{src}}
	}
	var s snapshot
	f := func(what string, v *view.View, live, event bool, want float64) {
		t.Helper()
		s.capture(v, 30*time.Second, now)
		if s.live[0] != live || s.live[1] != event || !(s.cells[0] == want || math.IsNaN(s.cells[0]) && math.IsNaN(want)) {
			t.Errorf("%s: live %v, XID %v; want [%v %v] and %v", what, s.live, s.cells[0], live, event, want)
		}
	}
	fresh, old := now.UnixNano(), now.Add(-time.Hour).UnixNano()
	f("before any row", view1(0, 0, math.NaN()), false, true, math.NaN())
	f("before any XID", view1(1, fresh, math.NaN()), true, true, math.NaN())
	f("none so far", view1(1, fresh, 0), true, true, 0)
	f("stale, so that it is not known any more", view1(1, old, 0), false, true, math.NaN())
	f("an XID", view1(2, fresh, 79), true, true, 79)
	f("the next session", view1(3, fresh, math.NaN()), true, true, 79)
	f("lost", view1(4, old, math.NaN()), false, true, 79)
	f("never sampled", view1(5, 0, math.NaN()), false, true, 79)
	another := view1(6, fresh, 13)
	f("another XID", another, true, true, 13)
	f("a session that has seen none", view1(6, fresh, 0), true, true, 13)
	another = view1(6, fresh, 13)
	f("the same XID", another, true, true, 13)
	another.Sources[0].Ring.Append(now.UnixNano(), []int64{fresh}, []float64{31}) // the last row of its session
	f("the session after a last row that no page showed", view1(7, fresh, math.NaN()), true, true, 31)
}
