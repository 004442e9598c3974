package exporter

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// maxAbsentSeries is the maximum number of series of the metric: 40 GPUs with 100 absent fields each.
const maxAbsentSeries = 4096

var (
	descAbsent = prometheus.NewDesc("warpgauge_field_absent",
		"1 for each field of the list that a device has no value of, and why. Links and cores are left out. Only with --absent-fields.", []string{"device", "field", "reason"}, nil)
	descLeftOut = prometheus.NewDesc("warpgauge_field_absent_left_out",
		"Series of warpgauge_field_absent beyond 4096, which are not shown.", nil, nil)
)

// absentMetric is warpgauge_field_absent. Its functions must not block.
type absentMetric struct {
	View       func() *view.View
	Status     func() []session.CollectorStatus
	StaleAfter time.Duration
}

// Describe implements prometheus.Collector.
func (m *absentMetric) Describe(ch chan<- *prometheus.Desc) {
	ch <- descAbsent
	ch <- descLeftOut
}

// Collect implements prometheus.Collector. Without a source it has no list and no series; the states of the
// devices tell the reason.
func (m *absentMetric) Collect(ch chan<- prometheus.Metric) {
	v := m.View()
	var list field.List
	if len(v.Sources) > 0 {
		list = v.Sources[0].Fields
	}
	r := session.NewReport(v, m.Status(), list, session.ReportOptions{StaleAfter: m.StaleAfter, Now: time.Now()})
	n := 0
	type series struct{ field, reason string }
	for i := range r.Devices {
		d := &r.Devices[i]
		if l := d.Device.Level; l == field.Link || l == field.Core {
			continue
		}
		seen := make(map[series]bool, len(d.Fields)) // a list can repeat a field
		for j := range d.Fields {
			f := &d.Fields[j]
			s := series{f.Name, string(f.Absent.Reason)}
			if s.reason == "" || seen[s] {
				continue
			}
			seen[s] = true
			if n++; n <= maxAbsentSeries {
				ch <- prometheus.MustNewConstMetric(descAbsent, prometheus.GaugeValue, 1, d.Device.ID, s.field, s.reason)
			}
		}
	}
	ch <- prometheus.MustNewConstMetric(descLeftOut, prometheus.GaugeValue, float64(max(0, n-maxAbsentSeries)))
}
