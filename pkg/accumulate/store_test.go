package accumulate

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

// tick writes n rows of value v, a second apart from second from on.
func tick(b *board, from, n int, v float64) {
	for i := range n {
		for d := range b.Devices {
			*b.cell(d, cellPower) = v
		}
		b.row(at(float64(from + i)))
	}
}

func TestEveryRowIsOneObservation(t *testing.T) {
	b := newBoard(16, "GPU-a")
	v := viewOf(b)
	s := New(Options{})
	tick(b, 0, 3, 100)
	s.Sync(v, at(3))
	s.Sync(v, at(3))
	checkHistogram(t, power(t, s, "GPU-a"), 3, 300)
	tick(b, 3, 2, 60)
	*b.cell(0, cellPower) = nan
	b.row(at(5))
	s.Sync(v, at(5))
	h := power(t, s, "GPU-a")
	checkHistogram(t, h, 5, 420)
	if diff := cmp.Diff([]uint64{0, 5000, 0, 0, 0}, h.Counts); diff != "" {
		t.Errorf("classic buckets (-want +got):\n%s", diff)
	}
}

func TestFailedSamplesAddNothing(t *testing.T) {
	b := newBoard(16, "GPU-a", "GPU-b", "GPU-never")
	s := New(Options{})
	for d := range b.Devices {
		*b.cell(d, cellPower) = 100
	}
	b.row(at(0), 2)
	b.row(at(1), 1, 2)
	b.row(at(2), 1, 2)
	b.row(at(3), 0, 1, 2)
	s.Sync(viewOf(b), at(3))
	checkHistogram(t, power(t, s, "GPU-a"), 3, 300)
	checkHistogram(t, power(t, s, "GPU-b"), 1, 100)
	checkHistogram(t, power(t, s, "GPU-never"), 0, 0)
}

// TestNonsenseIsNotCounted: rows can lie in memory that another process writes.
func TestNonsenseIsNotCounted(t *testing.T) {
	b := newBoard(16, "GPU-a")
	s := New(Options{})
	for i, v := range []float64{100, -1, 3001, 1e308, 1e308, math.Inf(1), 3000, 0} {
		tick(b, i, 1, v)
	}
	s.Sync(viewOf(b), at(8))
	checkHistogram(t, power(t, s, "GPU-a"), 3, 3100)
}

func TestScale(t *testing.T) {
	b := newBoard(16, "GPU-a")
	fd := &b.Fields.Fields[0]
	fd.Scale, fd.Buckets = 0.001, []float64{0.1, 0.2}
	s := New(Options{})
	tick(b, 0, 2, 150)
	s.Sync(viewOf(b), at(2))
	h := power(t, s, "GPU-a")
	checkHistogram(t, h, 2, 0.3)
	if diff := cmp.Diff([]uint64{0, 2000, 0}, h.Counts); diff != "" {
		t.Errorf("classic buckets (-want +got):\n%s", diff)
	}
}

// TestPercentsOnBounds: 70 × 0.01 is greater than 0.7, and 70 % is in that bucket all
// the same.
func TestPercentsOnBounds(t *testing.T) {
	bounds := []float64{0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1}
	for i, bound := range bounds {
		b := newBoard(16, "GPU-a")
		fd := &b.Fields.Fields[0]
		fd.Scale, fd.Buckets = 0.01, bounds
		s := New(Options{})
		tick(b, 0, 1, math.Round(bound*100))
		s.Sync(viewOf(b), at(1))
		if h := power(t, s, "GPU-a"); h.Counts[i] != 1000 {
			t.Errorf("%v %%: buckets %v, want it in the one up to %v", math.Round(bound*100), h.Counts, bound)
		}
	}
}

func TestHistogramPerColumn(t *testing.T) {
	b := newBoard(16, "GPU-a")
	link := []collector.Label{{Name: "nvlink", Value: "3"}}
	b.Columns[cellXID2] = collector.Column{Field: descPower.ID, Labels: link}
	s := New(Options{})
	*b.cell(0, cellPower), *b.cell(0, cellXID2) = 10, 20
	b.row(at(0))
	s.Sync(viewOf(b), at(0))
	checkHistogram(t, power(t, s, "GPU-a"), 1, 10)
	if e := find(s, "GPU-a", descPower.Name, "nvlink", "3"); e == nil {
		t.Error("the column with labels has no histogram")
	} else {
		checkHistogram(t, e.Histogram, 1, 20)
	}
}

func TestNewViewOfTheSameRing(t *testing.T) {
	b := newBoard(16, "GPU-a")
	s := New(Options{})
	tick(b, 0, 3, 100)
	s.Sync(viewOf(b), at(3))
	version := s.Version()
	tick(b, 3, 2, 100)
	v := viewOf(b)
	s.Sync(v, at(5))
	checkHistogram(t, power(t, s, "GPU-a"), 5, 500)
	if s.Version() == version {
		t.Error("a new view did not change the version")
	}
	version = s.Version()
	tick(b, 5, 2, 100)
	s.Sync(v, at(7))
	checkHistogram(t, power(t, s, "GPU-a"), 7, 700)
	if s.Version() != version {
		t.Error("the version changed without need")
	}
}

// TestTakeover: the ring of the source that takes over holds rows from before the
// last of the other.
func TestTakeover(t *testing.T) {
	old, next := newBoard(16, "GPU-a"), newBoard(16, "GPU-a")
	s := New(Options{})
	tick(old, 0, 3, 100)
	s.Sync(viewOf(old), at(3))
	tick(old, 3, 3, 100) // not read when the view changes
	tick(next, 3, 5, 100)
	v := viewOf(next)
	s.Sync(v, at(8))
	checkHistogram(t, power(t, s, "GPU-a"), 8, 800)
	tick(old, 6, 5, 100) // not in the View
	tick(next, 8, 1, 100)
	s.Sync(v, at(9))
	checkHistogram(t, power(t, s, "GPU-a"), 9, 900)
}

// TestSessionsInSuccession: counters continue from session to session, each with a new
// ring that holds nothing of the last one's; the clock may have been set back.
func TestSessionsInSuccession(t *testing.T) {
	s := New(Options{})
	for session := range 5 {
		b := newBoard(16, "GPU-a")
		v := viewOf(b)
		s.Sync(v, at(float64(session*10))) // a View with no rows yet
		*b.cell(0, cellXID) = 48
		tick(b, session*10+1, 3, 100)
		if session%2 == 0 {
			s.Sync(v, at(float64(session*10+4))) // else the last rows are read when the next begins
		}
	}
	b := newBoard(16, "GPU-a")
	v := viewOf(b)
	s.Sync(v, at(60))
	tick(b, 2, 2, 100)
	s.Sync(v, at(61))
	checkHistogram(t, power(t, s, "GPU-a"), 17, 1700)
	if got := value(s, "GPU-a", xidTotal, "xid", "48"); got != 5 {
		t.Errorf("total of xid 48: got %v, want 5", got)
	}
}

// TestRingThatComesBack: a source leaves the view and returns with its ring.
func TestRingThatComesBack(t *testing.T) {
	b := newBoard(16, "GPU-a")
	s := New(Options{})
	tick(b, 0, 3, 100)
	s.Sync(viewOf(b), at(3))
	s.Sync(viewOf(), at(4))
	if got := len(s.Series()); got != 0 {
		t.Errorf("an empty view has %d series", got)
	}
	tick(b, 3, 2, 100)
	s.Sync(viewOf(b), at(5))
	checkHistogram(t, power(t, s, "GPU-a"), 5, 500)
}

func TestClockSteps(t *testing.T) {
	b := newBoard(16, "GPU-a")
	v := viewOf(b)
	s := New(Options{})
	tick(b, 10_000, 3, 100)
	s.Sync(v, at(10_003))
	tick(b, 100, 3, 100) // set back within a ring
	s.Sync(v, at(103))
	checkHistogram(t, power(t, s, "GPU-a"), 6, 600)

	tick(b, 20_000, 1, 100)
	s.Sync(v, at(20_001))
	next := newBoard(16, "GPU-a")
	tick(next, 200, 3, 100) // and at a takeover: too far to be an overlap
	s.Sync(viewOf(next), at(203))
	checkHistogram(t, power(t, s, "GPU-a"), 10, 1000)
}

func TestStampsThatMakeNoSense(t *testing.T) {
	b := newBoard(16, "GPU-a")
	s := New(Options{})
	row := func(stamp, now int64) {
		*b.cell(0, cellXID) = 48
		*b.cell(0, cellClocks) = float64(now & 1)
		b.Ring.Append(now, []int64{stamp}, b.cells)
	}
	for i, stamp := range []int64{-1 << 63, 1<<63 - 1, -1, 0, 1} {
		row(stamp, stamp)
		row(int64(i), -stamp)
	}
	s.Sync(viewOf(b), at(0))
	next := newBoard(16, "GPU-a")
	tick(next, 0, 2, 100)
	s.Sync(viewOf(next), at(2))
	if h := power(t, s, "GPU-a"); h.Sum != 200_000 {
		t.Errorf("sum after nonsense: got %v, want the 200 W for a second each of the new ring", h.Sum)
	}
	checkSums(t, power(t, s, "GPU-a"))
}

func TestStateOutlivesAbsence(t *testing.T) {
	f := func(absent time.Duration, want uint64) {
		t.Helper()
		s := New(Options{})
		b := newBoard(16, "GPU-a")
		tick(b, 0, 3, 100)
		s.Sync(viewOf(b), at(3))
		away := viewOf()
		for d := time.Duration(0); d <= absent; d += 30 * time.Second {
			s.Sync(away, at(3).Add(d))
		}
		next := newBoard(16, "GPU-a")
		tick(next, 3+int(absent.Seconds()), 2, 100)
		s.Sync(viewOf(next), at(5).Add(absent))
		checkHistogram(t, power(t, s, "GPU-a"), want, 100*float64(want))
	}
	f(0, 5)
	f(time.Minute, 5)
	f(59*time.Minute, 5)
	f(2*time.Hour, 2)
}

func TestMemoryOfAbsentDevicesIsBounded(t *testing.T) {
	s := New(Options{})
	for i := range 30 {
		ids := make([]string, 100)
		for j := range ids {
			ids[j] = fmt.Sprintf("GPU-%d-%d", i, j)
		}
		s.Sync(viewOf(newBoard(2, ids...)), at(float64(i)))
	}
	// In use: histogram, XIDs and clock events of 100 devices.
	if got, want := len(s.states.held), retainMax+300; got != want {
		t.Errorf("states in memory: got %d, want %d", got, want)
	}
	if got := s.states.held[key{"GPU-29-7", stateXIDs, ""}]; got == nil {
		t.Error("a state in use was forgotten")
	}
}

// TestReloadWithOtherBuckets: the series starts again, the others continue.
func TestReloadWithOtherBuckets(t *testing.T) {
	b := newBoard(16, "GPU-a")
	s := New(Options{})
	*b.cell(0, cellXID) = 48
	tick(b, 0, 3, 100)
	s.Sync(viewOf(b), at(3))
	next := newBoard(16, "GPU-a")
	next.Fields.Fields[0].Buckets = []float64{1, 2}
	tick(next, 3, 2, 100)
	s.Sync(viewOf(next), at(5))
	checkHistogram(t, power(t, s, "GPU-a"), 2, 200)
	if got := value(s, "GPU-a", xidTotal, "xid", "48"); got != 1 {
		t.Errorf("total of xid 48: got %v, want 1", got)
	}
}

// TestNothingIsCountedTwice: the same device in two sources, the same line
// twice in the list.
func TestNothingIsCountedTwice(t *testing.T) {
	first, second := newBoard(16, "GPU-a"), newBoard(16, "GPU-a", "GPU-b")
	list := testFields()
	list.Fields = append(list.Fields, list.Fields...)
	first.Fields, second.Fields = list, list
	v := viewOf(first, second)
	s := New(Options{})
	*first.cell(0, cellXID), *second.cell(0, cellXID) = 48, 48
	tick(first, 0, 3, 100)
	tick(second, 0, 4, 7)
	s.Sync(v, at(4))
	checkHistogram(t, power(t, s, "GPU-a"), 3, 300)
	checkHistogram(t, power(t, s, "GPU-b"), 4, 28)
	if got := value(s, "GPU-a", xidTotal, "xid", "48"); got != 1 {
		t.Errorf("total of xid 48: got %v, want 1", got)
	}
	seen := map[string]bool{}
	for _, e := range s.Series() {
		id := fmt.Sprint(e.Source.Devices[e.Device].ID, e.Field.Name, e.Labels)
		if seen[id] {
			t.Errorf("series %s is there twice", id)
		}
		seen[id] = true
	}
}

// TestSecondSourceTakesOver: the other source continues when the first one ends,
// and of its ring, read all the while, nothing is counted twice.
func TestSecondSourceTakesOver(t *testing.T) {
	first, second := newBoard(64, "GPU-a"), newBoard(64, "GPU-a")
	s := New(Options{})
	tick(first, 0, 3, 100)
	tick(second, 0, 3, 100)
	s.Sync(viewOf(first, second), at(3))
	tick(second, 3, 2, 100)
	s.Sync(viewOf(second), at(5))
	tick(second, 5, 1, 100)
	s.Sync(viewOf(second), at(6))
	// Rows 3 and 4 were read when the device was not the second's: row 5 stands for them.
	checkHistogram(t, power(t, s, "GPU-a"), 6, 600)
}

func TestMalformedSourcesAreLeftOut(t *testing.T) {
	good := newBoard(16, "GPU-a")
	noRing, badColumn, badStamps := newBoard(16, "GPU-b"), newBoard(16, "GPU-c"), newBoard(16, "GPU-d")
	noRing.Ring = nil
	badColumn.Columns[0].Device = 1
	badStamps.Ring = ring.Make(16, 2, cellsPerDevice)
	badCells := newBoard(16, "GPU-e")
	badCells.Ring = ring.Make(16, 1, 1)
	tick(good, 0, 1, 100)
	s := New(Options{})
	s.Sync(viewOf(noRing, badColumn, good, badStamps, badCells), at(1))
	for _, e := range s.Series() {
		if e.Source != good.Source {
			t.Errorf("series of %q", e.Source.Devices[e.Device].ID)
		}
	}
	checkHistogram(t, power(t, s, "GPU-a"), 1, 100)
}

func TestFieldsThatAreNotWanted(t *testing.T) {
	b := newBoard(16, "GPU-a")
	b.Fields.Fields[0].Type = field.Gauge
	b.Fields.Fields = b.Fields.Fields[:1]
	s := New(Options{})
	*b.cell(0, cellXID) = 48
	tick(b, 0, 1, 100)
	s.Sync(viewOf(b), at(1))
	if got := len(s.Series()); got != 0 {
		t.Errorf("got %d series of fields that are not in the list", got)
	}
}

func TestOverruns(t *testing.T) {
	b := newBoard(16, "GPU-a")
	v := viewOf(b)
	s := New(Options{})
	tick(b, 0, 1, 100)
	s.Sync(v, at(1))
	tick(b, 1, 20, 100)
	s.Sync(v, at(21))
	if got := s.Overruns(); got != 4 {
		t.Errorf("overruns: got %d, want 4", got)
	}
	checkHistogram(t, power(t, s, "GPU-a"), 17, 1700)
	tick(b, 21, 17, 100)
	s.Sync(viewOf(newBoard(16, "GPU-b")), at(40))
	if got := s.Overruns(); got != 5 {
		t.Errorf("overruns after the ring is gone: got %d, want 5", got)
	}
}

func TestSeriesListIsImmutable(t *testing.T) {
	b := newBoard(16, "GPU-a")
	v := viewOf(b)
	s := New(Options{})
	tick(b, 0, 1, 100)
	s.Sync(v, at(1))
	before := s.Series()
	kept := append([]Series(nil), before...)
	*b.cell(0, cellXID) = 7
	tick(b, 1, 1, 100)
	s.Sync(v, at(2))
	if len(s.Series()) == len(before) {
		t.Fatal("the new code made no series")
	}
	for i := range kept {
		if before[i].Value != kept[i].Value || before[i].Histogram != kept[i].Histogram {
			t.Fatalf("entry %d of the old list changed", i)
		}
	}
}

func TestSyncAllocatesNothing(t *testing.T) {
	b := newBoard(64, "GPU-a", "GPU-b")
	v := viewOf(b)
	s := New(Options{})
	now := 0
	step := func() {
		for d := range b.Devices {
			*b.cell(d, cellPower) = float64(now % 300)
			*b.cell(d, cellClocks) = float64(now % 512)
			*b.cell(d, cellXID) = 79
		}
		b.row(at(float64(now)))
		s.Sync(v, at(float64(now)))
		now++
	}
	for range 10 {
		step()
	}
	if got := testing.AllocsPerRun(500, step); got != 0 {
		t.Errorf("a tick and a Sync allocate %v times", got)
	}
}

func TestEmptyStore(t *testing.T) {
	s := New(Options{})
	if s.Version() != 0 || s.Series() != nil || s.Overruns() != 0 {
		t.Errorf("new store: version %d, %d series, %d overruns", s.Version(), len(s.Series()), s.Overruns())
	}
	s.Sync(new(view.Board).Load(), at(0))
	if s.Version() == 0 || len(s.Series()) != 0 {
		t.Errorf("store of an empty view: version %d, %d series", s.Version(), len(s.Series()))
	}
}
