package accumulate

import (
	"math"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/view"
	"warpgauge/pkg/view/viewtest"
)

var (
	descPower  = &field.Descriptor{ID: 155, Name: "DCGM_FI_DEV_POWER_USAGE", Kind: field.Double, Unit: "W", Min: 0, Max: 3000}
	descXIDs   = &field.Descriptor{ID: field.XIDErrorsCount, Name: "DCGM_EXP_XID_ERRORS_COUNT"}
	descXIDSum = &field.Descriptor{ID: field.XIDErrorsTotal, Name: "DCGM_EXP_XID_ERRORS_TOTAL"}
	descClocks = &field.Descriptor{ID: field.ClockEventsCount, Name: "DCGM_EXP_CLOCK_EVENTS_COUNT"}
	descOnsets = &field.Descriptor{ID: field.ClockEventsTotal, Name: "DCGM_EXP_CLOCK_EVENTS_TOTAL"}
)

// Cells of the sources that newBoard makes, for each device.
const (
	cellPower = iota
	cellClocks
	cellXID
	cellXID2
	cellsPerDevice
)

func testFields() field.List {
	return field.List{Fields: []field.Field{
		{Desc: descPower, Name: descPower.Name, Type: field.Histogram, Scale: 1, Buckets: []float64{50, 100, 200, 400}},
		{Desc: descXIDs, Name: descXIDs.Name, Type: field.Gauge, Scale: 1},
		{Desc: descXIDSum, Name: descXIDSum.Name, Type: field.Counter, Scale: 1},
		{Desc: descClocks, Name: descClocks.Name, Type: field.Gauge, Scale: 1},
		{Desc: descOnsets, Name: descOnsets.Name, Type: field.Counter, Scale: 1},
	}}
}

// board is a source under test with the row that its ring gets next.
type board struct {
	*viewtest.Feed
}

func newBoard(rows int, ids ...string) *board {
	b := &view.Source{Collector: "test", Fields: testFields(), Interval: time.Second}
	for i, id := range ids {
		b.Devices = append(b.Devices, collector.Device{ID: id, Level: field.GPU})
		b.Columns = append(b.Columns,
			collector.Column{Device: i, Field: descPower.ID},
			collector.Column{Device: i, Field: field.ClockEventReasons},
			collector.Column{Device: i, Field: field.XIDEvent},
			collector.Column{Device: i, Field: field.XIDEvent, Labels: []collector.Label{{Name: "slot", Value: "1"}}})
	}
	return &board{viewtest.New(b, rows)}
}

// cell returns the cell c of device d in the next row.
func (b *board) cell(d, c int) *float64 { return &b.Row[d*cellsPerDevice+c] }

// row appends a row at t and clears the events. The devices in failed were not sampled.
func (b *board) row(t time.Time, failed ...int) {
	b.Tick(t, failed...)
	for i := range b.Devices {
		*b.cell(i, cellXID), *b.cell(i, cellXID2) = math.NaN(), math.NaN()
	}
}

func viewOf(boards ...*board) *view.View {
	v := new(view.View)
	for _, b := range boards {
		v.Sources = append(v.Sources, b.Source)
	}
	return v
}

// newStore returns a Store, and a function that shows a View and counts its rows.
func newStore() (*Store, func(v *view.View, now time.Time)) {
	board := new(view.Board)
	s := New(Options{Rows: rows.New(board, nil)})
	return s, func(v *view.View, now time.Time) {
		if v != board.Load() {
			board.Store(v)
		}
		s.Sync(now)
	}
}

// start has no monotonic reading, so that tests can move it.
var start = time.Unix(1_700_000_000, 0)

func at(seconds float64) time.Time {
	return start.Add(time.Duration(seconds * float64(time.Second)))
}

// find returns the series of a device and field with exactly the given further labels, as name, value pairs.
func find(s *Store, device, name string, labels ...string) *Series {
	for i := range s.Series() {
		e := &s.Series()[i]
		if e.Source.Devices[e.Device].ID != device || e.Field.Name != name || len(e.Labels) != len(labels)/2 {
			continue
		}
		same := true
		for j, l := range e.Labels {
			same = same && l.Name == labels[2*j] && l.Value == labels[2*j+1]
		}
		if same {
			return e
		}
	}
	return nil
}

// value returns the value of the series from find, or NaN.
func value(s *Store, device, name string, labels ...string) float64 {
	if e := find(s, device, name, labels...); e != nil {
		return *e.Value
	}
	return math.NaN()
}

func power(t *testing.T, s *Store, device string) *Histogram {
	t.Helper()
	e := find(s, device, descPower.Name)
	testkit.FatalIf(t, e == nil, "device %q has no histogram", device)
	return e.Histogram
}

// checkHistogram fails unless h is consistent and has the given number of seconds and sum for each value.
func checkHistogram(t *testing.T, h *Histogram, seconds uint64, sum float64) {
	t.Helper()
	testkit.ErrorIf(t, h.Count != 1000*seconds || h.Sum != 1000*sum, "histogram: got count %d and sum %v, want %d and %v", h.Count, h.Sum, 1000*seconds, 1000*sum)
	checkSums(t, h)
}

func checkSums(t *testing.T, h *Histogram) {
	t.Helper()
	var classic, native uint64
	for _, n := range h.Counts {
		classic += n
	}
	for _, n := range h.Positive {
		native += n
	}
	if native += h.ZeroCount; classic != h.Count || native != h.Count {
		t.Errorf("histogram of %d: classic buckets add up to %d, native ones to %d", h.Count, classic, native)
	}
}
