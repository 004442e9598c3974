package exposition

import (
	"strings"
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

	want := `
# HELP warpgauge_exposition_layout_builds_total Times that a new layout of the page was built: sources, fields, owners or accumulated series changed.
# TYPE warpgauge_exposition_layout_builds_total counter
warpgauge_exposition_layout_builds_total 1
# HELP warpgauge_exposition_left_out What the page's layout has no room for: a second series with the same name and labels (duplicate_series), a series that does not fit its family or has no legal name (misfit_series), a label whose name is taken or illegal (label).
# TYPE warpgauge_exposition_left_out gauge
warpgauge_exposition_left_out{what="duplicate_series"} 1
warpgauge_exposition_left_out{what="label"} 1
warpgauge_exposition_left_out{what="misfit_series"} 0
# HELP warpgauge_exposition_renders_total Pages made. Scrapes that find nothing new share the page that is there.
# TYPE warpgauge_exposition_renders_total counter
warpgauge_exposition_renders_total{encoding="gzip",format="openmetrics"} 0
warpgauge_exposition_renders_total{encoding="gzip",format="protobuf"} 1
warpgauge_exposition_renders_total{encoding="gzip",format="text"} 0
warpgauge_exposition_renders_total{encoding="identity",format="openmetrics"} 0
warpgauge_exposition_renders_total{encoding="identity",format="protobuf"} 1
warpgauge_exposition_renders_total{encoding="identity",format="text"} 2
# HELP warpgauge_exposition_series Series that the page has room for; a histogram is one. Blank values and stale devices leave gaps.
# TYPE warpgauge_exposition_series gauge
warpgauge_exposition_series 1
`
	names := []string{"warpgauge_exposition_layout_builds_total", "warpgauge_exposition_left_out", "warpgauge_exposition_renders_total", "warpgauge_exposition_series"}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	if got := testutil.ToFloat64(r.metrics.bytes.WithLabelValues("text", "identity")); got != float64(size) {
		t.Errorf("page has %v bytes, want %d", got, size)
	}
	if n, err := testutil.GatherAndCount(registry, "warpgauge_exposition_render_duration_seconds"); n != 6 || err != nil {
		t.Errorf("%d durations, %v", n, err)
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}
