package session

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"warpgauge/pkg/collector"
)

// A scraper tells a count that began again by its time: sessions follow each other within a process.
func TestCountsSayWhenTheyBegan(t *testing.T) {
	began := time.Unix(1795348800, 0)
	costs := Costs{
		Collector: "toy", Began: began, Sources: map[string]SourceCost{"a": {Samples: 2}},
		Calls: map[string]collector.CallCost{"x": {Count: 3}}, Implausible: map[string]uint64{"f": 1},
	}
	ch := make(chan prometheus.Metric, 16)
	costs.Collect(ch)
	close(ch)
	counts := 0
	for metric := range ch {
		var m dto.Metric
		if err := metric.Write(&m); err != nil {
			t.Fatal(err)
		}
		if m.Gauge != nil {
			continue
		}
		counts++
		at := m.GetCounter().GetCreatedTimestamp()
		if m.Histogram != nil {
			at = m.Histogram.GetCreatedTimestamp()
		}
		if at == nil || !at.AsTime().Equal(began) {
			t.Errorf("%v began at %v, want %v", metric.Desc(), at, began)
		}
	}
	if counts != 7 {
		t.Errorf("%d counts, want 7", counts)
	}
}
