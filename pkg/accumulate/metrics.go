package accumulate

import (
	"github.com/prometheus/client_golang/prometheus"
)

var (
	descOverruns = prometheus.NewDesc("warpgauge_ring_overruns_total",
		"Sampled rows that were overwritten before they were read: histograms and event counts lack them.", nil, nil)
	descRows = prometheus.NewDesc("warpgauge_accumulate_rows_total",
		"Sampled rows that were read into histograms and event counts.", nil, nil)
	descSeries = prometheus.NewDesc("warpgauge_accumulate_series",
		"Histograms and event counts of the devices and fields in service.", nil, nil)
)

// Describe implements prometheus.Collector.
func (s *Store) Describe(ch chan<- *prometheus.Desc) {
	ch <- descOverruns
	ch <- descRows
	ch <- descSeries
	s.gaps.Describe(ch)
}

// Collect implements prometheus.Collector.
func (s *Store) Collect(ch chan<- prometheus.Metric) {
	s.Lock()
	rows, series := s.rows, len(s.series)
	s.Unlock()
	ch <- prometheus.MustNewConstMetric(descOverruns, prometheus.CounterValue, float64(s.reader.Overruns()))
	ch <- prometheus.MustNewConstMetric(descRows, prometheus.CounterValue, float64(rows))
	ch <- prometheus.MustNewConstMetric(descSeries, prometheus.GaugeValue, float64(series))
	s.gaps.Collect(ch)
}
