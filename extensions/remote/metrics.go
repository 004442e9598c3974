package remote

import (
	"github.com/prometheus/client_golang/prometheus"
)

var _ prometheus.Collector = (*Manager)(nil)

var (
	descStatus = prometheus.NewDesc("warpgauge_remote_config_status",
		"1, labelled with what became of the server's list: waiting, applied, reported, refused, failed, ended, or unreachable while the server is.", []string{"status"}, nil)
	descRefused = prometheus.NewDesc("warpgauge_remote_refused_lines",
		"Refusals of the list that the server delivered last; /api/v1/list has them.", nil, nil)
	descUnkept = prometheus.NewDesc("warpgauge_remote_unkept",
		"1 if the list in service could not be kept in --remote-directory, else 0.", nil, nil)
	descUntil = prometheus.NewDesc("warpgauge_list_until_timestamp_seconds",
		"When the list in service ends and the former one returns, in Unix time. Absent if it stays.", nil, nil)
)

// Describe sends the descriptions of a Manager's metrics.
func (*Manager) Describe(ch chan<- *prometheus.Desc) {
	ch <- descStatus
	ch <- descRefused
	ch <- descUnkept
	ch <- descUntil
}

// Collect sends the metrics. It waits for nothing.
func (m *Manager) Collect(ch chan<- prometheus.Metric) {
	s := m.State()
	unkept := 0.0
	if s.Unkept != "" {
		unkept = 1
	}
	ch <- prometheus.MustNewConstMetric(descStatus, prometheus.GaugeValue, 1, s.Condition())
	ch <- prometheus.MustNewConstMetric(descRefused, prometheus.GaugeValue, float64(len(s.Refused)))
	ch <- prometheus.MustNewConstMetric(descUnkept, prometheus.GaugeValue, unkept)
	if l := m.InService(); l != nil && !l.Until.IsZero() {
		ch <- prometheus.MustNewConstMetric(descUntil, prometheus.GaugeValue, float64(l.Until.Unix()))
	}
}
