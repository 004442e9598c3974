package exposition

import (
	"math"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/accumulate"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/view/viewtest"
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
	f := viewtest.Simple(field.List{Fields: fields}, []collector.Device{{ID: "0", Level: field.CPU, Labels: labelsFrom("cpu", "0")}},
		[]collector.Column{{Field: power.ID}, {Field: xid.ID}})
	f.Interval = time.Second
	board := viewtest.Board(1, f)
	r := New(board, Options{Store: accumulate.New(accumulate.Options{Rows: rows.New(board, nil)})})
	first := time.Now().Truncate(time.Millisecond).Add(-3 * time.Second)
	for i := range 3 {
		f.Row[0], f.Row[1] = 50, math.NaN()
		if i == 1 {
			f.Row[1] = 79
		}
		f.Tick(first.Add(time.Duration(i) * time.Second))
	}
	began := first.Add(-time.Second).UnixMilli() // the first row counts for the second before it
	page := pageOf(t, r, Protobuf)
	got := parse(t, page, Protobuf).Began
	for name, at := range map[string]int64{"H": began, "DRIVERS_OWN_TOTAL": 0, total.Name + "79": began, total.Name + "48": began, count.Name + "79": 0} {
		began, there := got[name]
		testkit.ErrorIf(t, !there || began != at, "%s began at %d (on the page: %v), want %d\n%s", name, began, there, at, page)
	}
}
