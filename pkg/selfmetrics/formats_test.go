package selfmetrics

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/protobuf/encoding/protodelim"

	"warpgauge/internal/testkit"
)

// TestFormats: each format has all families. A counter whose family name would clash keeps its name in
// OpenMetrics.
func TestFormats(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	for _, name := range []string{"test_bytes_total", "test_events_total", "test_bare"} {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: "H."}, []string{"l"})
		c.WithLabelValues("a\"\n").Add(3)
		r.MustRegister(c)
	}
	r.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "test_bytes", Help: "G."}), prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "test_none"}, []string{"l"}))
	p := New(r, Options{})
	const text = `# HELP test_bare H.
# TYPE test_bare counter
test_bare{l="a\"\n"} 3
# HELP test_bytes G.
# TYPE test_bytes gauge
test_bytes 0
# HELP test_bytes_total H.
# TYPE test_bytes_total counter
test_bytes_total{l="a\"\n"} 3
# HELP test_events_total H.
# TYPE test_events_total counter
test_events_total{l="a\"\n"} 3
`
	testkit.Equal(t, "text", text, string(p.Text()))
	open := strings.NewReplacer("} 3", "} 3.0", "bytes 0", "bytes 0.0", "bytes_total counter", "bytes_total unknown", "events_total H", "events H",
		"TYPE test_events_total", "TYPE test_events", "test_bare counter", "test_bare unknown").Replace(text)
	testkit.Equal(t, "OpenMetrics", open, string(p.OpenMetrics()))
	var again strings.Builder
	for in := bytes.NewReader(p.Protobuf()); in.Len() > 0; {
		var f dto.MetricFamily
		testkit.Must(t, protodelim.UnmarshalFrom(in, &f))
		testkit.Get(expfmt.MetricFamilyToText(&again, &f))(t)
	}
	testkit.Equal(t, "protobuf", text, again.String())
}

func TestRegistry(t *testing.T) {
	reg := NewRegistry("1.2.3", "")
	want := fmt.Sprintf(`
# HELP warpgauge_build_info 1, labelled with what the binary was built from.
# TYPE warpgauge_build_info gauge
warpgauge_build_info{goversion=%q,revision="unknown",version="1.2.3"} 1
`, runtime.Version())
	testkit.Must(t, testutil.GatherAndCompare(reg, strings.NewReader(want), "warpgauge_build_info"))
	New(reg, Options{Registerer: reg})
	families, err := reg.Gather()
	testkit.Must(t, err)
	own := slices.DeleteFunc(families, func(f *dto.MetricFamily) bool { return !strings.HasPrefix(f.GetName(), "warpgauge_") })
	problems, err := promlint.NewWithMetricFamilies(own).Lint()
	testkit.ErrorIf(t, err != nil || len(problems) != 0, "lint: %v, %v", problems, err)
}
