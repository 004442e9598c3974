package history

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of a History.
type metrics struct {
	bytes, series             prometheus.Gauge
	samples, lost             prometheus.Counter
	refused                   prometheus.Counter
	samplesTotal, refusedLast uint64
}

func newMetrics(to prometheus.Registerer) *metrics {
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
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "warpgauge_history_lost_rows_total", Help: "Rows that were overwritten before the history had read them.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "warpgauge_history_refused_samples_total", Help: "Samples of series for which the history has no room (--history-bytes).",
		}),
	}
	if to != nil {
		to.MustRegister(m.bytes, m.series, m.samples, m.lost, m.refused)
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
