package main

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"warpgauge/collectors/fake"
	"warpgauge/etc"
	"warpgauge/extensions/health"
	"warpgauge/extensions/health/signs"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/verdict"
	"warpgauge/pkg/view"
)

// signFamilies gathers the metrics of early signs of a node on which each of them holds.
func signFamilies() ([]*dto.MetricFamily, error) {
	src := &view.Source{Collector: "fake", Interval: time.Minute / 2}
	for i := range 4 {
		n := strconv.Itoa(i)
		src.Devices = append(src.Devices, collector.Device{ID: "GPU-" + n, Level: field.GPU, GPU: n, Model: "GPU"})
		for _, id := range []field.ID{100, 150, 155, 203, 310, 389, 429, field.ClockEventReasons} {
			src.Columns = append(src.Columns, collector.Column{Device: i, Field: id})
		}
	}
	src.Ring = ring.Make(16, len(src.Devices), len(src.Columns))
	board, now, calls := &view.Board{}, time.Unix(1e9, 0), uint64(0)
	reg := prometheus.NewRegistry()
	s := signs.New(signs.Options{Rows: rows.New(board, nil), Observe: func(health.Observation) {}, Registerer: reg,
		Calls: func(report func(string, string, uint64, float64)) { report("fake", "GPU-0", calls, float64(calls)) }})
	board.Store(&view.View{Version: 1, Sources: []*view.Source{src}})
	stamps, row := make([]int64, len(src.Devices)), make([]float64, len(src.Columns))
	for range 200 {
		now = now.Add(src.Interval)
		calls++
		for i := range stamps {
			stamps[i] = now.UnixNano()
			copy(row[8*i:], []float64{1500, 60, 500, 99, float64(calls) * 1e4, 1, float64(calls), 1 << 6})
		}
		src.Ring.Append(now.UnixNano(), stamps, row)
		s.Sync(now)
	}
	return reg.Gather()
}

// TestEarlySigns: a bank without spare rows is read, seen and judged although the list does not
// have the reading, and the times of library calls are those of the node's sources.
func TestEarlySigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newJudgedNode(t, nvidiaNode, "DCGM_FI_DEV_SM_CLOCK, gauge, c\n")
		done := make(chan error, 1)
		go func() { done <- n.signs.Run(t.Context()) }()
		t.Cleanup(func() { <-done })
		time.Sleep(5 * time.Second)
		none, _ := field.ByID(389)
		heal := n.inject(fake.Fault{Kind: fake.Absurd, Field: none, Value: 2})
		time.Sleep(3 * time.Minute)
		if v := n.verdict(field.GPU, "1"); v.State != verdict.Degraded || v.Reason != "spare_rows_low" || v.Conditions[0].Evidence[0].Text != "2 memory banks without a spare row" {
			t.Errorf("the verdict is %v %q with %+v", v.State, v.Reason, v.Conditions)
		}
		if v := n.verdict(field.GPU, "0"); v.State != verdict.OK {
			t.Errorf("the other GPU is %v %q", v.State, v.Reason)
		}
		heal()
		time.Sleep(12 * time.Minute)
		if v := n.verdict(field.GPU, "1"); v.State != verdict.OK {
			t.Errorf("after the fault the verdict is %v %q", v.State, v.Reason)
		}

		counts := map[string]uint64{}
		n.Engine.sampleTimes(func(collector, source string, count uint64, seconds float64) {
			if collector != "fake" || seconds < 0 {
				t.Errorf("collector %q, %v s", collector, seconds)
			}
			counts[source] = count
		})
		for _, src := range n.Engine.Board().Load().Sources {
			if got := counts[src.Devices[0].ID]; got < 900 {
				t.Errorf("source %s has taken %d samples, want one a second", src.Devices[0].ID, got)
			}
		}
	})
}

// TestSimulatedNodesAreWell: an hour of each simulated node under load, with all that the
// recommended list reads, has no verdict other than ok and no sign, except that one GPU of each
// has an XID 94 now and then, on purpose.
func TestSimulatedNodesAreWell(t *testing.T) {
	csv, err := etc.Files().ReadFile("recommended-counters.csv")
	must(t, err)
	for _, profile := range fake.Profiles() {
		t.Run(profile, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newJudgedNode(t, profile, string(csv), "--collect-interval=5000")
				done := make(chan error, 1)
				go func() { done <- n.signs.Run(t.Context()) }()
				t.Cleanup(func() { <-done })
				time.Sleep(30 * time.Second)
				for range 60 {
					time.Sleep(time.Minute)
					for _, v := range n.health.Board().Load().Verdicts {
						if v.Reason != "xid_94" && v.State != verdict.OK || len(v.Conditions) > 1 {
							t.Fatalf("%s: %v %q with %+v", v.Device.ID, v.State, v.Reason, v.Conditions)
						}
					}
				}
			})
		})
	}
}
