package main

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/health"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/signs"
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
	s := signs.New(signs.Options{Board: board, Observe: func(health.Observation) {}, Registerer: reg,
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
