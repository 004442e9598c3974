package exposition

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics holds the Renderer's own metrics.
type metrics struct {
	renders  *prometheus.CounterVec
	duration *prometheus.HistogramVec
	bytes    *prometheus.GaugeVec
	builds   prometheus.Counter
	series   prometheus.Gauge
	left     *prometheus.GaugeVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	by := []string{"format", "encoding"}
	m := &metrics{
		renders: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "warpgauge_exposition_renders_total", Help: "Pages made. Scrapes that find nothing new share the page that is there."}, by),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "warpgauge_exposition_render_duration_seconds",
			Help:    "Time to make a page; for encoding gzip the time to compress it.",
			Buckets: []float64{1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1},
		}, by),
		bytes:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "warpgauge_exposition_page_bytes", Help: "Size of the newest page."}, by),
		builds: prometheus.NewCounter(prometheus.CounterOpts{Name: "warpgauge_exposition_layout_builds_total", Help: "Times that a new layout of the page was built: sources, fields, owners or accumulated series changed."}),
		series: prometheus.NewGauge(prometheus.GaugeOpts{Name: "warpgauge_exposition_series", Help: "Series that the page has room for; a histogram is one. Blank values and stale devices leave gaps."}),
		left:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "warpgauge_exposition_left_out", Help: "What the page's layout has no room for: a second series with the same name and labels (duplicate_series), a series that does not fit its family or has no legal name (misfit_series), a label whose name is taken or illegal (label)."}, []string{"what"}),
	}
	for _, f := range []Format{Text, OpenMetrics, Protobuf} { // there from the start
		for _, encoding := range []string{"identity", "gzip"} {
			m.renders.WithLabelValues(f.String(), encoding)
			m.duration.WithLabelValues(f.String(), encoding)
			m.bytes.WithLabelValues(f.String(), encoding)
		}
	}
	m.leftOut(layoutStats{})
	if r != nil {
		r.MustRegister(m.renders, m.duration, m.bytes, m.builds, m.series, m.left)
	}
	return m
}

func (m *metrics) rendered(f Format, encoding string, bytes int, took time.Duration) {
	m.renders.WithLabelValues(f.String(), encoding).Inc()
	m.duration.WithLabelValues(f.String(), encoding).Observe(took.Seconds())
	m.bytes.WithLabelValues(f.String(), encoding).Set(float64(bytes))
}

func (m *metrics) leftOut(s layoutStats) {
	m.left.WithLabelValues("duplicate_series").Set(float64(s.duplicates))
	m.left.WithLabelValues("misfit_series").Set(float64(s.misfits))
	m.left.WithLabelValues("label").Set(float64(s.labels))
}
