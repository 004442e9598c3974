package exposition

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/accumulate"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view/viewtest"
)

// one returns a feed of one device with a column per descriptor, all of value 1.
func one(id string, fields []field.Field, descs ...*field.Descriptor) *feed {
	var columns []collector.Column
	for _, d := range descs {
		columns = append(columns, collector.Column{Field: d.ID})
	}
	f := viewtest.Simple(field.List{Fields: fields}, []collector.Device{{ID: id, Level: field.CPU, Labels: labelsFrom("cpu", id)}}, columns)
	for i := range f.Row {
		f.Row[i] = 1
	}
	f.Tick(time.Now())
	return f
}

func TestLayout(t *testing.T) {
	f := func(what, want string, stats layoutStats, all ...*feed) {
		t.Helper()
		r := New(viewtest.Board(1, all...), Options{})
		testkit.Equal(t, what, want, pageOf(t, r, Text))
		testkit.Equal(t, what, stats, r.layout.stats, cmp.AllowUnexported(layoutStats{}))
	}
	temp := func(name string, kind field.Type, help string) []field.Field {
		return []field.Field{metric(descTemp, name, kind, help)}
	}
	two := []field.Field{
		metric(descTemp, "Z", field.Gauge, ""),
		{Desc: descTemp, Name: "A", Type: field.Counter, Scale: 1000},
		metric(descTemp, "L", field.Label, ""),
		metric(descTemp, "H", field.Histogram, ""),
	}
	f("fields that share a reading, sorted", "# TYPE A counter\nA{cpu=\"0\"} 1000\n# TYPE Z gauge\nZ{cpu=\"0\"} 1\n",
		layoutStats{series: 2}, one("0", two, descTemp))

	f("sources that share a family", "# HELP T First.\n# TYPE T gauge\nT{cpu=\"0\"} 1\nT{cpu=\"1\"} 1\n",
		layoutStats{series: 2}, one("0", temp("T", field.Gauge, "First."), descTemp), one("1", temp("T", field.Counter, "Second."), descTemp))

	f("a column that no field wants", "# TYPE T gauge\nT{cpu=\"0\"} 1\n",
		layoutStats{series: 1}, one("0", temp("T", field.Gauge, ""), descPower, descTemp))

	f("a column that is there twice", "# TYPE T gauge\nT{cpu=\"0\"} 1\n",
		layoutStats{series: 1, duplicates: 1}, one("0", temp("T", field.Gauge, ""), descTemp, descTemp))

	f("a field that is there twice", "# TYPE T gauge\nT{cpu=\"0\"} 1\n",
		layoutStats{series: 1, duplicates: 1}, one("0", append(temp("T", field.Gauge, ""), temp("T", field.Gauge, "")...), descTemp))

	a, b := one("0", temp("T", field.Gauge, ""), descTemp), one("0", temp("T", field.Gauge, ""), descTemp)
	b.Devices[0].ID = "another" // but with the same labels
	f("devices with the same labels", "# TYPE T gauge\nT{cpu=\"0\"} 1\n", layoutStats{series: 1, duplicates: 1}, a, b)

	a, b = one("0", temp("T", field.Gauge, ""), descTemp), one("0", temp("T", field.Gauge, ""), descTemp)
	a.Devices[0].ID, b.Devices[0].ID = "", "" // unknown, so perhaps different
	f("devices without id", "# TYPE T gauge\nT{cpu=\"0\"} 1\n", layoutStats{series: 1, duplicates: 1}, a, b)

	f("an illegal name", "", layoutStats{misfits: 1}, one("0", temp("T T", field.Gauge, ""), descTemp))

	a = one("0", temp("T", field.Gauge, ""), descTemp, descTemp, descTemp)
	a.Columns[0].Device, a.Columns[2].Device = 1, -1
	f("a column of no device", "# TYPE T gauge\nT{cpu=\"0\"} 1\n", layoutStats{series: 1, misfits: 2}, a)

	a = viewtest.Simple(field.List{Fields: temp("T", field.Gauge, "")}, []collector.Device{{ID: "0", Level: field.CPU, Labels: labelsFrom("cpu", "0")}, {ID: "1", Level: field.CPU, Labels: labelsFrom("cpu", "1")}},
		[]collector.Column{{Device: 1, Field: descTemp.ID}, {Device: 0, Field: descTemp.ID}})
	a.Row[0], a.Row[1] = 11, 10
	a.Tick(time.Now())
	f("columns in another order than devices", "# TYPE T gauge\nT{cpu=\"0\"} 10\nT{cpu=\"1\"} 11\n", layoutStats{series: 2}, a)
}

// TestTotal: OpenMetrics removes _total from the name of a counter's family, unless another family has that name.
func TestTotal(t *testing.T) {
	f := func(want string, fields ...field.Field) {
		t.Helper()
		testkit.Equal(t, "page", want+"# EOF\n", pageOf(t, New(viewtest.Board(1, one("0", fields, descTemp)), Options{}), OpenMetrics))
	}
	f("# TYPE a counter\na_total{cpu=\"0\"} 1\n", metric(descTemp, "a_total", field.Counter, ""))
	f("# TYPE a_TOTAL unknown\na_TOTAL{cpu=\"0\"} 1\n", metric(descTemp, "a_TOTAL", field.Counter, ""))
	f("# TYPE _total unknown\n_total{cpu=\"0\"} 1\n", metric(descTemp, "_total", field.Counter, ""))
	f("# TYPE a_total gauge\na_total{cpu=\"0\"} 1\n", metric(descTemp, "a_total", field.Gauge, ""))
	f("# TYPE a gauge\na{cpu=\"0\"} 1\n# TYPE a_total unknown\na_total{cpu=\"0\"} 1\n",
		metric(descTemp, "a_total", field.Counter, ""), metric(descTemp, "a", field.Gauge, ""))
}

func TestAccumulatedSeries(t *testing.T) {
	fields := []field.Field{
		metric(descTemp, "T", field.Gauge, ""),
		metric(descTemp, "H_sum", field.Gauge, ""),    // taken by a histogram
		metric(descTemp, "M", field.Gauge, ""),        // would be shared with a histogram
		metric(descTemp, "H_count_", field.Gauge, ""), // not taken
	}
	feed, other := one("0", fields, descTemp), one("9", fields, descTemp)
	h := &accumulate.Histogram{Count: 1, Sum: 2, Bounds: []float64{1}, Counts: []uint64{0, 1}}
	count := 7.0
	named := func(name string) *field.Field { return &field.Field{Desc: descTemp, Name: name, Type: field.Histogram} }
	board := viewtest.Board(1, feed)
	store := &testStore{board: board, series: []accumulate.Series{
		{Source: feed.Source, Field: named("H"), Histogram: h},
		{Source: feed.Source, Field: named("M"), Histogram: h},
		{Source: feed.Source, Field: named("T"), Value: &count},                                  // the cell was first
		{Source: feed.Source, Field: named("V"), Value: &count, Labels: labelsFrom("xid", "79")}, // a value of type histogram
		{Source: feed.Source, Field: named("V"), Value: &count, Labels: labelsFrom("xid", "79")},
		{Source: feed.Source, Field: named("N")},
		{Source: feed.Source, Field: named("V"), Value: &count, Device: 1},
		{Source: other.Source, Field: named("V"), Value: &count}, // of another View
	}}
	r := New(board, Options{})
	r.store = store
	want := `# TYPE H histogram
H_bucket{cpu="0",le="1"} 0
H_bucket{cpu="0",le="+Inf"} 1
H_sum{cpu="0"} 2
H_count{cpu="0"} 1
# TYPE H_count_ gauge
H_count_{cpu="0"} 1
# TYPE M gauge
M{cpu="0"} 1
# TYPE T gauge
T{cpu="0"} 1
# TYPE V untyped
V{cpu="0",xid="79"} 7
`
	testkit.Equal(t, "", want, pageOf(t, r, Text))
	testkit.Equal(t, "series", layoutStats{series: 5, duplicates: 2, misfits: 5}, r.layout.stats, cmp.AllowUnexported(layoutStats{}))
	testkit.Equal(t, "syncs for one page", 1, store.synced)
}
