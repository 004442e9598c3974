package exposition

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"warpgauge/pkg/field"
)

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	f := one("0", []field.Field{metric(descTemp, "T", field.Gauge, "")}, descTemp, descTemp)
	f.Devices[0].Facts = labelsFrom("cpu", "9")
	r := New(boardOf(f), Options{Registerer: registry})
	size := len(pageOf(t, r, Text))
	pageOf(t, r, Text) // shared
	f.tick(time.Now())
	pageOf(t, r, Text)
	r.Page(Protobuf, true)

	m := r.metrics
	for what, got := range map[string]struct {
		metric prometheus.Collector
		want   float64
	}{
		"layouts": {m.builds, 1}, "series": {m.series, 1}, "bytes of the text": {m.bytes.WithLabelValues("text", "identity"), float64(size)},
		"duplicates": {m.left.WithLabelValues("duplicate_series"), 1}, "labels": {m.left.WithLabelValues("label"), 1}, "misfits": {m.left.WithLabelValues("misfit_series"), 0},
		"text": {m.renders.WithLabelValues("text", "identity"), 2}, "text in gzip": {m.renders.WithLabelValues("text", "gzip"), 0},
		"protobuf": {m.renders.WithLabelValues("protobuf", "identity"), 1}, "protobuf in gzip": {m.renders.WithLabelValues("protobuf", "gzip"), 1},
		"OpenMetrics": {m.renders.WithLabelValues("openmetrics", "identity"), 0},
	} {
		if v := testutil.ToFloat64(got.metric); v != got.want {
			t.Errorf("%s: %v, want %v", what, v, got.want)
		}
	}
	if n, err := testutil.GatherAndCount(registry, "warpgauge_exposition_render_duration_seconds"); n != 6 || err != nil {
		t.Errorf("%d durations, %v", n, err)
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}
