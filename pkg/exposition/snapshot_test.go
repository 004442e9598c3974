package exposition

import (
	"math"
	"testing"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

// TestFreshness checks with which stamps, relative to now, a device is on the page.
func TestFreshness(t *testing.T) {
	const staleAfter = 30 * time.Second
	now := time.Unix(1_800_000_000, 0)
	f := func(stamp int64, want bool) {
		t.Helper()
		src := &view.Source{Devices: []collector.Device{{ID: "GPU-a"}}, Ring: ring.Make(2, 1, 0)}
		src.Ring.Append(stamp, []int64{stamp}, nil)
		var s snapshot
		s.take(&view.View{Version: 1, Sources: []*view.Source{src}}, staleAfter, now)
		if s.live[0] != want {
			t.Errorf("stamp %d s from now: fresh is %v, want %v", (stamp-now.UnixNano())/int64(time.Second), s.live[0], want)
		}
	}
	at := func(d time.Duration) int64 { return now.Add(d).UnixNano() }
	f(0, false)
	f(at(0), true)
	f(at(-29*time.Second), true)
	f(at(-30*time.Second), false)
	f(at(-time.Hour), false)
	f(at(time.Second), true) // the clock was set back a little
	f(at(time.Hour), false)
	f(math.MaxInt64, false)
	f(math.MinInt64, false)
	f(-1, false)
}
