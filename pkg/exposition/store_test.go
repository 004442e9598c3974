package exposition

import (
	"math"
	"strings"
	"testing"
	"time"

	"warpgauge/pkg/accumulate"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/rows"
)

// TestCreated reads the start of counts with Prometheus' own parser.
func TestCreated(t *testing.T) {
	power := &field.Descriptor{ID: 155, Name: "POWER", Level: field.GPU, Unit: "W", Max: 1000}
	xid, _ := field.ByID(field.XIDEvent)
	total, _ := field.ByID(field.XIDErrorsTotal)
	count, _ := field.ByID(field.XIDErrorsCount)
	fields := []field.Field{
		{Desc: power, Name: "H", Type: field.Histogram, Scale: 1, Buckets: []float64{100, 200}},
		metric(power, "DRIVERS_OWN_TOTAL", field.Counter, ""), // its start is unknown
		metric(total, total.Name, field.Counter, ""),
		metric(count, count.Name, field.Gauge, ""),
	}
	for _, lines := range []bool{false, true} {
		f := newFeed(field.List{Fields: fields}, []collector.Device{{ID: "0", Level: field.CPU, Labels: labelsFrom("cpu", "0")}},
			[]collector.Column{{Field: power.ID}, {Field: xid.ID}})
		f.Interval = time.Second
		board := boardOf(f)
		r := New(board, Options{Store: accumulate.New(accumulate.Options{Rows: rows.New(board, nil)}), CreatedLines: lines})
		first := time.Now().Truncate(time.Millisecond).Add(-3 * time.Second)
		for i := range 3 {
			f.row[0], f.row[1] = 50, math.NaN()
			if i == 1 {
				f.row[1] = 79
			}
			f.tick(first.Add(time.Duration(i) * time.Second))
		}
		began := first.Add(-time.Second).UnixMilli() // the first row counts for the second before it
		for _, format := range []Format{OpenMetrics, Protobuf} {
			page := pageOf(t, r, format)
			got := parse(t, page, format).Began
			want := map[string]int64{"H": began, "DRIVERS_OWN_TOTAL": 0, total.Name + "79": began, total.Name + "48": began, count.Name + "79": 0}
			if format == OpenMetrics { // which has no such counter
				want = map[string]int64{"H_bucket": began, "H_sum": began, "H_count": began, "DRIVERS_OWN_TOTAL": 0, total.Name + "79": 0, count.Name + "79": 0}
			}
			if format == OpenMetrics && !lines {
				for name := range want {
					want[name] = 0
				}
			}
			for name, at := range want {
				if began, there := got[name]; !there || began != at {
					t.Errorf("%v, lines %v: %s began at %d (on the page: %v), want %d\n%s", format, lines, name, began, there, at, page)
				}
			}
			if !lines && strings.Contains(page, "_created") {
				t.Errorf("%v has lines that were not asked for", format)
			}
		}
	}
}
