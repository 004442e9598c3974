package signs

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/pkg/field"
)

var (
	deviceLabels = []string{"device", "gpu"}

	descCorrected = prometheus.NewDesc("warpgauge_sign_corrected_errors_per_hour",
		"Memory errors that were corrected within the last hour.", deviceLabels, nil)
	descBanks = prometheus.NewDesc("warpgauge_sign_banks_short_of_spare_rows",
		"Memory banks with few (low) or no (none) spare rows left.", append(deviceLabels, "left"), nil)
	descLinks = prometheus.NewDesc("warpgauge_sign_link_error_budget_used_ratio",
		"Errors of a link within the last hour as a share of what is acceptable. Absent without errors.", append(deviceLabels, "link"), nil)
	descThrottled = prometheus.NewDesc("warpgauge_sign_throttled_seconds",
		"Time of the last hour in which clocks were held down, by reason. Absent if they were not.", append(deviceLabels, "reason"), nil)
	descDeviation = prometheus.NewDesc("warpgauge_sign_deviation_ratio",
		"How far a GPU's mean is from the median of GPUs with the same work, as a share of that.", append(deviceLabels, "of"), nil)
	descWarmer = prometheus.NewDesc("warpgauge_sign_deviation_celsius",
		"How much warmer a GPU is than the median of GPUs with the same work.", deviceLabels, nil)
)

// Describe sends nothing, because the families depend on the available readings.
func (s *Signs) Describe(chan<- *prometheus.Desc) {}

// Collect sends the signs that have a value.
func (s *Signs) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, d := range s.present {
		if s.now > 0 && d.fresh(s.now) { // otherwise nothing was computed yet
			d.collect(gauge)
		}
	}
}

func (d *device) collect(gauge func(*prometheus.Desc, float64, ...string)) {
	if d.links.known && d.links.share > 0 {
		gauge(descLinks, d.links.share, d.ID, d.GPU, d.linkName())
	}
	if d.corrected.used() {
		gauge(descCorrected, d.corrected.total, d.ID, d.GPU)
	}
	for left, n := range map[string]float64{"low": d.low, "none": d.values[field.BanksWithoutSpareRow]} {
		if !math.IsNaN(n) {
			gauge(descBanks, n, d.ID, d.GPU, left)
		}
	}
	for i := range d.throttled {
		if seconds := d.throttled[i].total; seconds > 0 {
			reason, _ := field.ClockReason(i)
			gauge(descThrottled, seconds, d.ID, d.GPU, reason)
		}
	}
	for i, v := range d.deviation {
		switch {
		case math.IsNaN(v):
		case i == deviationTemperature:
			gauge(descWarmer, v, d.ID, d.GPU)
		default:
			gauge(descDeviation, v, d.ID, d.GPU, deviationNames[i])
		}
	}
}
