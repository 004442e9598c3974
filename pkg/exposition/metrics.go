package exposition

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the Renderer's own. Everything that changes per page is resolved
// once, so that counting allocates nothing.
type metrics struct {
	pages  [formats][2]pageMetrics
	builds prometheus.Counter
	series prometheus.Gauge
	left   [3]prometheus.Gauge
}

type pageMetrics struct {
	renders  prometheus.Counter
	duration prometheus.Observer
	bytes    prometheus.Gauge
}

// Why series and labels are left out, in the order of metrics.left.
const (
	leftDuplicates = iota
	leftMisfits
	leftLabels
)

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{}
	by := []string{"format", "encoding"}
	renders := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "warpgauge_exposition_renders_total",
		Help: "Pages made. Scrapes that find nothing new share the page that is there.",
	}, by)
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "warpgauge_exposition_render_duration_seconds",
		Help:    "Time to make a page; for encoding gzip the time to compress it.",
		Buckets: []float64{1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1},
	}, by)
	bytes := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "warpgauge_exposition_page_bytes",
		Help: "Size of the newest page.",
	}, by)
	for _, f := range []Format{Text, OpenMetrics, Protobuf} {
		for z, encoding := range [...]string{"identity", "gzip"} {
			m.pages[f][z] = pageMetrics{
				renders:  renders.WithLabelValues(f.String(), encoding),
				duration: duration.WithLabelValues(f.String(), encoding),
				bytes:    bytes.WithLabelValues(f.String(), encoding),
			}
		}
	}
	m.builds = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "warpgauge_exposition_layout_builds_total",
		Help: "Times that the page's layout was built anew: sources, fields, owners or accumulated series changed.",
	})
	m.series = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "warpgauge_exposition_series",
		Help: "Series that the page has room for; a histogram is one. Blank values and stale devices leave gaps.",
	})
	left := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "warpgauge_exposition_left_out",
		Help: "What the page's layout has no room for: a second series with the same name and labels (duplicate_series), a series that does not fit its family or has no legal name (misfit_series), a label whose name is taken or illegal (label).",
	}, []string{"what"})
	for i, what := range [...]string{leftDuplicates: "duplicate_series", leftMisfits: "misfit_series", leftLabels: "label"} {
		m.left[i] = left.WithLabelValues(what)
	}
	if r != nil {
		r.MustRegister(renders, duration, bytes, m.builds, m.series, left)
	}
	return m
}

func (m *metrics) rendered(f Format, zipped bool, bytes int, took time.Duration) {
	p := &m.pages[f][0]
	if zipped {
		p = &m.pages[f][1]
	}
	p.renders.Inc()
	p.duration.Observe(took.Seconds())
	p.bytes.Set(float64(bytes))
}

func (m *metrics) laidOut(s layoutStats) {
	m.builds.Inc()
	m.series.Set(float64(s.series))
	m.left[leftDuplicates].Set(float64(s.duplicates))
	m.left[leftMisfits].Set(float64(s.misfits))
	m.left[leftLabels].Set(float64(s.labels))
}
