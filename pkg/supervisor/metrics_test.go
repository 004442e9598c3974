package supervisor

import (
	"testing"

	"warpgauge/internal/testkit"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// gather returns the families of a supervisor by name.
func gather(t *testing.T, s *Supervisor) map[string]*dto.MetricFamily {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(s)
	all := testkit.Get(r.Gather())(t)
	out := make(map[string]*dto.MetricFamily)
	for _, f := range all {
		out[f.GetName()] = f
	}
	return out
}

// value returns the sum of a family's counters, gauges and histogram counts over the series with these label values.
func value(t *testing.T, s *Supervisor, name string, labels ...string) (sum float64) {
	t.Helper()
	for _, m := range gather(t, s)[name].GetMetric() {
		match := 0
		for _, l := range m.GetLabel() {
			for i := 0; i < len(labels); i += 2 {
				if l.GetName() == labels[i] && l.GetValue() == labels[i+1] {
					match++
				}
			}
		}
		if match == len(labels)/2 {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

// metric returns the value of one counter or gauge.
func metric(m prometheus.Metric) float64 {
	var out dto.Metric
	if m.Write(&out) != nil {
		return -1
	}
	return out.GetCounter().GetValue() + out.GetGauge().GetValue()
}
