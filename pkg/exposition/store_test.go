package exposition

import (
	"strings"
	"testing"
	"time"

	"warpgauge/pkg/accumulate"
	"warpgauge/pkg/field"
)

// TestRealStore runs a histogram from rows to the page in all formats.
func TestRealStore(t *testing.T) {
	power := &field.Descriptor{ID: 155, Name: "POWER", Level: field.GPU, Unit: "W", Max: 1000}
	f := one("0", []field.Field{
		metric(power, "P", field.Gauge, ""),
		{Desc: power, Name: "H", Type: field.Histogram, Scale: 1, Buckets: []float64{100, 200}},
	}, power)
	f.Interval = time.Second
	for _, watts := range []float64{50, 150, 150, 999} {
		f.row[0] = watts
		f.tick(time.Now().Add(-time.Second)) // the rows stand for a second each
	}
	r := New(boardOf(f), Options{Store: accumulate.New(accumulate.Options{})})
	text := pageOf(t, r, Text)
	want := parse(t, text, Text).Values
	for _, line := range []string{"P{cpu=\"0\"} 999", `H_bucket{cpu="0",le="100"} `, `H_count{cpu="0"} `} {
		if !strings.Contains(text, line) {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
	for _, format := range []Format{OpenMetrics, Protobuf} {
		got := parse(t, pageOf(t, r, format), format)
		for name, v := range want {
			if got.Values[name] != v {
				t.Errorf("%v: %s is %v, want %v", format, name, got.Values[name], v)
			}
		}
		if format == Protobuf && len(got.Histograms) != 1 {
			t.Errorf("native histograms: %v", got.Histograms)
		}
	}
}
