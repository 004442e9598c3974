package selfmetrics

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// pedantic is a registry with one family of every type and awkward text.
func pedantic() *prometheus.Registry {
	r := prometheus.NewPedanticRegistry()
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "test_events_total", Help: "Counter with \\ and\nnew line."}, []string{"reason"})
	c.WithLabelValues("quote \" backslash \\ newline \n ü").Add(3)
	c.WithLabelValues("").Add(1e18)
	bare := prometheus.NewCounter(prometheus.CounterOpts{Name: "test_bare", Help: "Counter without the suffix."})
	bare.Inc()
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "test_level", Help: "Gauge."})
	g.Set(-0.25)
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "test_duration_seconds", Help: "Histogram.",
		Buckets: []float64{0.1, 1}, NativeHistogramBucketFactor: 1.1})
	for _, v := range []float64{0.05, 0.5, 5} {
		h.Observe(v)
	}
	s := prometheus.NewSummary(prometheus.SummaryOpts{Name: "test_wait_seconds", Help: "Summary.", Objectives: map[float64]float64{0.5: 0.05}})
	s.Observe(2)
	r.MustRegister(c, bare, g, h, s)
	return r
}

// parse returns what Prometheus reads from a page: series with values, native
// histograms as text, and the types of the families.
func parse(t *testing.T, page []byte, contentType string) (series map[string]string, types map[string]string) {
	t.Helper()
	p, err := textparse.New(page, contentType, labels.NewSymbolTable(), textparse.ParserOptions{KeepClassicOnClassicAndNativeHistograms: true})
	if err != nil {
		t.Fatal(err)
	}
	series, types = map[string]string{}, map[string]string{}
	put := func(l labels.Labels, v string) {
		if _, twice := series[l.String()]; twice {
			t.Errorf("%s: series %s is there twice", contentType, l)
		}
		series[l.String()] = v
	}
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return series, types
		}
		if err != nil {
			t.Fatalf("parse %s: %v\n%s", contentType, err, page)
		}
		var l labels.Labels
		switch entry {
		case textparse.EntrySeries:
			_, _, v := p.Series()
			p.Labels(&l)
			put(l, fmt.Sprint(v))
		case textparse.EntryHistogram:
			_, _, h, fh := p.Histogram()
			p.Labels(&l)
			put(l, fmt.Sprint(h, fh))
		case textparse.EntryType:
			name, kind := p.Type()
			if _, twice := types[string(name)]; twice {
				t.Errorf("%s: family %s is declared twice", contentType, name)
			}
			types[string(name)] = string(kind)
		}
	}
}

const (
	textType     = "text/plain; version=0.0.4"
	omType       = "application/openmetrics-text; version=1.0.0"
	protobufType = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
)

func openMetrics(p *Page) []byte { return append(slices.Clone(p.OpenMetrics()), "# EOF\n"...) }

// TestFormatsSayTheSame: Prometheus reads the same series, under the same
// names, from each format; protobuf has native histograms in addition.
func TestFormatsSayTheSame(t *testing.T) {
	for name, g := range map[string]prometheus.Gatherer{"every type": pedantic(), "process": NewRegistry("1", "2")} {
		t.Run(name, func(t *testing.T) {
			p := New(g, Options{})
			text, textTypes := parse(t, p.Text(), textType)
			om, omTypes := parse(t, openMetrics(p), omType)
			if diff := cmp.Diff(text, om); diff != "" {
				t.Errorf("text (-) and OpenMetrics (+) differ:\n%s", diff)
			}
			proto, _ := parse(t, p.Protobuf(), protobufType)
			native := 0
			for series, v := range proto {
				if _, ok := text[series]; !ok && strings.HasPrefix(v, "{count:") {
					native++
					delete(proto, series)
				}
			}
			if diff := cmp.Diff(text, proto); diff != "" {
				t.Errorf("text (-) and protobuf (+) differ:\n%s", diff)
			}
			if want := strings.Count(name, "every"); native != want {
				t.Errorf("protobuf has %d native histograms, want %d", native, want)
			}
			for family, kind := range textTypes {
				omName := family
				if kind == "counter" {
					omName = strings.TrimSuffix(family, "_total")
					if _, clash := textTypes[omName]; clash { // itself, if it has no suffix
						omName, kind = family, "unknown"
					}
				}
				if omTypes[omName] != kind {
					t.Errorf("family %s: type in OpenMetrics is %q, want %q", omName, omTypes[omName], kind)
				}
			}
		})
	}
}

func TestRegistry(t *testing.T) {
	reg := NewRegistry("1.2.3", "")
	want := fmt.Sprintf(`
# HELP warpgauge_build_info 1, labelled with what the binary was built from.
# TYPE warpgauge_build_info gauge
warpgauge_build_info{goversion=%q,revision="unknown",version="1.2.3"} 1
`, runtime.Version())
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "warpgauge_build_info"); err != nil {
		t.Error(err)
	}
	New(reg, Options{Registerer: reg})
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	own := slices.DeleteFunc(families, func(f *dto.MetricFamily) bool { return !strings.HasPrefix(f.GetName(), "warpgauge_") })
	problems, err := promlint.NewWithMetricFamilies(own).Lint()
	if err != nil || len(problems) != 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}
