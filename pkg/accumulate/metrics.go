package accumulate

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// published has the numbers that a gatherer may read while Sync runs.
type published struct {
	rows                atomic.Uint64
	series, kept, inUse atomic.Int64
}

func (s *Store) publish() {
	p := &s.published
	p.rows.Store(s.rows)
	p.series.Store(int64(len(s.series)))
	p.inUse.Store(int64(s.states.inUse))
	p.kept.Store(int64(len(s.states.held) - s.states.inUse))
}

// Overruns returns how many rows were overwritten before they were read, as of the last
// reading. Any goroutine may call it.
func (s *Store) Overruns() uint64 { return s.reader.Overruns() }

var _ prometheus.Collector = (*Store)(nil)

var (
	descOverruns = prometheus.NewDesc("warpgauge_ring_overruns_total",
		"Sampled rows that were overwritten before they were read: histograms and event counts lack them.", nil, nil)
	descRows = prometheus.NewDesc("warpgauge_accumulate_rows_total",
		"Sampled rows that were read into histograms and event counts.", nil, nil)
	descSeries = prometheus.NewDesc("warpgauge_accumulate_series",
		"Histograms and event counts of the devices and fields in service.", nil, nil)
	descStates = prometheus.NewDesc("warpgauge_accumulate_states",
		"Accumulated states in memory, by whether a device and field in service use them or they wait for their return.",
		[]string{"state"}, nil)
)

// Describe implements prometheus.Collector.
func (s *Store) Describe(ch chan<- *prometheus.Desc) {
	ch <- descOverruns
	ch <- descRows
	ch <- descSeries
	ch <- descStates
	s.gaps.Describe(ch)
}

// Collect implements prometheus.Collector. It may run during Sync.
func (s *Store) Collect(ch chan<- prometheus.Metric) {
	p := &s.published
	ch <- prometheus.MustNewConstMetric(descOverruns, prometheus.CounterValue, float64(s.Overruns()))
	ch <- prometheus.MustNewConstMetric(descRows, prometheus.CounterValue, float64(p.rows.Load()))
	ch <- prometheus.MustNewConstMetric(descSeries, prometheus.GaugeValue, float64(p.series.Load()))
	ch <- prometheus.MustNewConstMetric(descStates, prometheus.GaugeValue, float64(p.inUse.Load()), "in_use")
	ch <- prometheus.MustNewConstMetric(descStates, prometheus.GaugeValue, float64(p.kept.Load()), "kept")
	s.gaps.Collect(ch)
}
