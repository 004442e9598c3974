package recorder

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/rows"
)

// recordingOf returns a recording of one GPU over 10 s, with an event, a blank reading, and a gap without samples.
func recordingOf(t *testing.T) *Recording {
	list, _, err := field.Parse(strings.NewReader("DCGM_FI_DEV_POWER_USAGE, gauge, Power\nDCGM_FI_DEV_XID_ERRORS, gauge, XID\n"), field.ParseOptions{})
	must(t, err)
	start := time.Now().UTC()
	r := &Recording{Fields: []field.List{list}, Header: Header{
		Recording: rows.Recording{Name: "x.om.zst", Cause: "xid", Device: "GPU-a", From: start, Until: start.Add(10 * time.Second)},
		Hostname:  "node", Lists: []string{""},
		Devices: []Device{
			{Collector: "nvml", Interval: time.Second, Device: collector.Device{ID: "GPU-a", GPU: "0", Level: field.GPU}, State: "lost", Reason: "gone"},
			{Collector: "nvml", Interval: time.Second, Device: collector.Device{ID: "GPU-b", GPU: "1"}}, // without series
		},
	}}
	series := func(id field.ID, buffered bool, pairs ...float64) {
		var samples []Sample
		for i := 0; i < len(pairs); i += 2 {
			samples = append(samples, Sample{start.UnixMilli() + int64(pairs[i]), pairs[i+1]})
		}
		r.Series, r.Samples = append(r.Series, rows.Series{Device: "GPU-a", Field: id, Buffered: buffered}), append(r.Samples, samples)
	}
	series(155, false, 0, 100, 2000, 300.5, 3000, 400)
	series(150, false, 0, 50, 1000, 51, 2000, 52, 3000, 53) // not shown by the list
	series(155, true, 500, 99)
	series(field.XIDErrors, false, 2000, 79, 3000, 31)
	series(field.XIDEvent, false, 1500, 79, 3000, 31)
	series(60000, false, 0, 1) // from a later version
	return r
}

// TestReplay: a replay has the states and readings of the selected time.
func TestReplay(t *testing.T) {
	r := recordingOf(t)
	blank := math.NaN()
	f := func(at time.Duration, state string, want ...float64) {
		t.Helper()
		p := NewReplay(r, r.From.Add(at))
		all := p.Status()
		testkit.ErrorIf(t, len(all) != 1 || len(all[0].Devices) != 1 || all[0].Devices[0].State.String() != state, "at %v: %+v", at, all)
		var row ring.Row
		testkit.Equal(t, fmt.Sprintf("at %v: a row", at), want != nil, p.Board.Load().Sources[0].Ring.Latest(&row))
		testkit.Equal(t, fmt.Sprintf("at %v", at), want, row.Cells, cmp.Comparer(func(a, b float64) bool { return a == b || a != a && b != b }))
	}
	f(-time.Minute, "lost")
	f(0, "up", 100, 50, blank, blank)
	f(1200*time.Millisecond, "up", blank, 51, blank, blank) // a row with a blank
	f(2100*time.Millisecond, "up", 300.5, 52, 79, 79)
	f(3100*time.Millisecond, "up", 400, 53, 31, 31)
	f(10*time.Second, "lost", 400, 53, 31, 31)
}

// TestReplaysHistoryEqualsTheRecording: the history has all series, also those that the page does not show.
func TestReplaysHistoryEqualsTheRecording(t *testing.T) {
	r := recordingOf(t)
	p := NewReplay(r, r.Until)
	for i, s := range p.Series("", 0) {
		var got []Sample
		for at, v := range p.Samples(s, math.MinInt64, math.MaxInt64) {
			got = append(got, Sample{at, v})
		}
		testkit.Equal(t, fmt.Sprintf("series %d", i), r.Samples[i], got)
	}
	got := p.Series("GPU-a", 155)
	testkit.ErrorIf(t, len(got) != 2 || len(p.Series("GPU-b", 0)) != 0, "series of power: %v", got)
	n := 0
	for range p.Samples(r.Series[1], r.From.UnixMilli()+1000, r.From.UnixMilli()+3000) {
		n++
	}
	testkit.Equal(t, "samples of 2 s", 2, n)
}

// TestReplayOfAReload: the fields of the lists before and after a reload are present.
func TestReplayOfAReload(t *testing.T) {
	const before, after = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE"
	r := &Recording{Fields: []field.List{collectortest.Gauges(t, before), collectortest.Gauges(t, before, after)}}
	got := r.Status().InService.Fields.Fields
	testkit.ErrorIf(t, len(got) != 2 || got[1].Name != after, "fields %v", got)
	p := NewReplay(&Recording{}, time.Now())
	testkit.ErrorIf(t, len(p.Status())+len(p.Board.Load().Sources) != 0, "replay without devices: %v", p.Status()) // an operator can record a node without devices
}
