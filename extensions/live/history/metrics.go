package history

import (
	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/pkg/rows"
)

// metrics holds the metrics of a History.
type metrics struct {
	bytes, series             prometheus.Gauge
	samples                   prometheus.Counter
	refused                   prometheus.Counter
	samplesTotal, refusedLast uint64
}

func newMetrics(to prometheus.Registerer, reader *rows.Reader) *metrics {
	m := &metrics{
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "warpgauge_history_bytes", Help: "Memory that the history takes, about.",
		}),
		series: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "warpgauge_history_series", Help: "Series in the history.",
		}),
		samples: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "warpgauge_history_samples_total", Help: "Samples added to the history.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "warpgauge_history_refused_samples_total", Help: "Samples of series for which the history has no room (--history-bytes).",
		}),
	}
	if to != nil {
		to.MustRegister(m.bytes, m.series, m.samples, m.refused, prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "warpgauge_history_lost_rows_total", Help: "Rows that were overwritten before the history had read them.",
		}, func() float64 { return float64(reader.Overruns()) }))
	}
	return m
}

// publish brings the metrics up to date. The caller holds the store's lock.
func (m *metrics) publish(s *store) {
	m.bytes.Set(float64(s.bytes))
	m.series.Set(float64(len(s.series)))
	m.samples.Add(float64(s.samples - m.samplesTotal))
	m.refused.Add(float64(s.refused - m.refusedLast))
	m.samplesTotal, m.refusedLast = s.samples, s.refused
}
