package exporter

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

func parse(t *testing.T, text string) field.List {
	t.Helper()
	list, _, err := field.Parse(strings.NewReader(text), field.ParseOptions{File: "list"})
	must(t, err)
	return list
}

// source makes a source of one GPU with the cells as its columns, sampled now.
func source(list field.List, id string, cells map[field.ID]float64) *view.Source {
	now := time.Now().UnixNano()
	s := &view.Source{Collector: "nvml", Fields: list, Interval: time.Second, Devices: []collector.Device{{ID: id, Level: field.GPU}}}
	var row []float64
	for id, v := range cells {
		s.Columns, row = append(s.Columns, collector.Column{Field: id}), append(row, v)
	}
	s.Ring = ring.Make(16, 1, len(row))
	s.Ring.Append(now, []int64{now}, row)
	return s
}

func TestAbsentMetric(t *testing.T) {
	list := parse(t, "DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_DEV_FAN_SPEED, gauge, f\nDCGM_FI_DEV_GPU_UTIL, gauge, u\n")
	var explained collector.Absences
	s := source(list, "GPU-a", map[field.ID]float64{150: 41, 203: collector.Dropped(1e9)})
	explained.Complete(s.Devices, s.Columns, list.Readings(), func(int, *field.Descriptor) collector.Explanation {
		return collector.Explanation{Reason: collector.ReasonUnsupported, Detail: "no fan"}
	})
	s.Explanations, s.Absent = explained.Explanations(), explained.Absent()
	m := &absentMetric{
		View: func() *view.View { return &view.View{Sources: []*view.Source{s}} }, Status: func() []session.CollectorStatus { return nil }, StaleAfter: time.Minute,
	}
	err := testutil.CollectAndCompare(m, strings.NewReader(`
# HELP warpgauge_field_absent 1 for each field of the list that a device has no value of, and why. Links and cores are left out. Only with --absent-fields.
# TYPE warpgauge_field_absent gauge
warpgauge_field_absent{device="GPU-a",field="DCGM_FI_DEV_FAN_SPEED",reason="unsupported"} 1
warpgauge_field_absent{device="GPU-a",field="DCGM_FI_DEV_GPU_UTIL",reason="implausible"} 1
# HELP warpgauge_field_absent_left_out Series of warpgauge_field_absent beyond 4096, which are not shown.
# TYPE warpgauge_field_absent_left_out gauge
warpgauge_field_absent_left_out 0
`))
	testkit.ErrorIf(t, err != nil, "%v", err)
}

// The number of series is bounded for any number of devices and fields.
func TestAbsentMetricIsBounded(t *testing.T) {
	var csv strings.Builder
	n := 0
	for _, d := range field.All() {
		if d.Level == field.GPU && d.Kind == field.Int64 && d.Factor == 0 && n < 100 {
			n++
			csv.WriteString(d.Name + ", gauge, x\n")
		}
	}
	list := parse(t, csv.String())
	var sources []*view.Source
	for i := range 50 {
		sources = append(sources, source(list, fmt.Sprint("GPU-", i), map[field.ID]float64{field.XIDEvent: 0}))
	}
	m := &absentMetric{View: func() *view.View { return &view.View{Sources: sources} }, Status: func() []session.CollectorStatus { return nil }}
	testkit.Equal(t, "series", maxAbsentSeries, testutil.CollectAndCount(m, "warpgauge_field_absent"))
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(m)
	families := testkit.Get(reg.Gather())(t)
	testkit.Equal(t, "series left out", float64(50*n-maxAbsentSeries), families[len(families)-1].GetMetric()[0].GetGauge().GetValue())
}
