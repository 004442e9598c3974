package history

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/view"
)

const (
	power = field.ID(155) // DCGM_FI_DEV_POWER_USAGE
	xid   = field.XIDEvent
)

// start is the initial time of the tests' clock.
var start = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// node has a source with one device, and a clock.
type node struct {
	t     testing.TB
	board view.Board
	h     *History
	src   *view.Source
	now   time.Time
	row   []float64
}

func newNode(t testing.TB, o Options, columns ...collector.Column) *node {
	n := &node{t: t, now: start}
	o.Rows = rows.New(&n.board, nil)
	n.h = New(o)
	n.session("GPU-0", columns...)
	return n
}

// session publishes another source.
func (n *node) session(device string, columns ...collector.Column) {
	n.src = &view.Source{
		Collector: "test", Devices: []collector.Device{{ID: device}}, Columns: columns,
		Ring: ring.Make(1024, 1, len(columns)), Interval: time.Second,
	}
	n.row = make([]float64, len(columns))
	n.board.Store(&view.View{Sources: []*view.Source{n.src}})
}

// append writes a row with the current time.
func (n *node) append(cells ...float64) {
	n.src.Ring.Append(n.now.UnixNano(), []int64{n.now.UnixNano()}, cells)
}

// sample advances the clock, writes a row and lets the history read it.
func (n *node) sample(after time.Duration, cells ...float64) {
	n.now = n.now.Add(after)
	n.append(cells...)
	n.h.Sync(n.now)
}

type sample struct {
	At    int64 // ms since start
	Value float64
}

func (n *node) all(s rows.Series) (out []sample) {
	for at, v := range n.h.Samples(s, math.MinInt64, math.MaxInt64) {
		out = append(out, sample{at - start.UnixMilli(), v})
	}
	return out
}

func (n *node) one(reading field.ID) rows.Series {
	n.t.Helper()
	all := n.h.Series("", reading)
	testkit.FatalIf(n.t, len(all) != 1, "%d series, want 1: %v", len(all), all)
	return all[0]
}

func check(t testing.TB, got, want any) {
	t.Helper()
	bits := cmp.Comparer(func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) || a != a && b != b })
	testkit.Equal(t, "samples", want, got, bits)
}

var blank = math.NaN()

func TestSamplesAreWhatTheRowsHad(t *testing.T) {
	n := newNode(t, Options{}, collector.Column{Field: power})
	n.sample(0, blank) // a series begins with its first value
	n.sample(time.Second, 100)
	n.sample(time.Second, blank)
	n.append(250)                // an unchanged timestamp is not a new sample
	n.sample(time.Second, 100.5) // Sync reads all rows
	check(t, n.all(n.one(power)), []sample{{1000, 100}, {2000, blank}, {3000, 100.5}})
	s := n.one(0)
	var got []sample
	for at, v := range n.h.Samples(s, start.UnixMilli()+2000, start.UnixMilli()+3000) {
		got = append(got, sample{at - start.UnixMilli(), v})
	}
	check(t, got, []sample{{2000, blank}})
	testkit.Equal(t, "series of another device", 0, len(n.h.Series("GPU-1", 0)))
}

func TestASeriesLivesOnInTheNextSession(t *testing.T) {
	n := newNode(t, Options{}, collector.Column{Field: power})
	n.sample(0, 1)
	n.now = n.now.Add(time.Second)
	n.append(2) // not yet read when the session ends
	old := n.src
	n.session("GPU-0", collector.Column{Field: xid}, collector.Column{Field: power})
	n.src.Ring.Append(start.UnixNano(), []int64{start.UnixNano()}, []float64{blank, 7}) // sampled at the same time
	n.sample(time.Second, 13, 3)
	check(t, n.all(n.one(power)), []sample{{0, 1}, {1000, 2}, {2000, 3}})
	check(t, n.all(n.one(xid)), []sample{{2000, 13}})
	_ = old
}

func TestTheClockIsSetBack(t *testing.T) {
	n := newNode(t, Options{}, collector.Column{Field: power})
	for i := range 10 {
		n.sample(time.Second, float64(i))
	}
	n.sample(-4500*time.Millisecond, 100)
	n.sample(time.Second, 101)
	check(t, n.all(n.one(0))[4:], []sample{{5000, 4}, {5500, 100}, {6500, 101}})
	n.now = start.Add(-time.Hour)
	n.sample(0, 102)
	check(t, n.all(n.one(0)), []sample{{-3600_000, 102}})
}

// TestHistoryEqualsWhatWasWritten writes random rows over several sessions and compares all values
// within the limits with a plain copy.
func TestHistoryEqualsWhatWasWritten(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 17))
			columns := []collector.Column{
				{Field: power}, {Field: power, Labels: []collector.Label{{Name: "peer_gpu", Value: "1"}}}, {Field: xid},
			}
			n := newNode(t, Options{MaxAge: time.Minute}, columns...)
			want := make([][]sample, len(columns))
			for range 3000 {
				n.now = n.now.Add(time.Duration(1+r.IntN(40)) * 5 * time.Millisecond)
				if r.IntN(500) == 0 {
					n.session("GPU-0", columns...)
				}
				for i := range columns {
					v := math.Float64frombits(r.Uint64())
					switch k := r.IntN(10); {
					case k < 3:
						v = blank
					case k < 8:
						v = float64(r.IntN(4))
					}
					n.row[i] = v
					if math.IsNaN(v) && (i == 2 || len(want[i]) == 0) {
						continue
					}
					want[i] = append(want[i], sample{n.now.UnixMilli() - start.UnixMilli(), v})
				}
				n.append(n.row...)
				if r.IntN(20) == 0 {
					n.h.Sync(n.now)
				}
			}
			n.h.Sync(n.now)
			for i, s := range n.h.Series("", 0) {
				got := n.all(s)
				at := slices.IndexFunc(columns, func(c collector.Column) bool { return c.Field == s.Field && len(c.Labels) == len(s.Labels) })
				oldest := n.now.Add(-time.Minute).UnixMilli() - start.UnixMilli()
				first := slices.IndexFunc(want[at], func(x sample) bool { return x.At >= got[0].At })
				check(t, got, want[at][first:])
				testkit.ErrorIf(t, got[0].At > oldest+500 || got[0].At < oldest-8000, "series %d begins %d ms after the oldest sample that is kept", i, got[0].At-oldest)
			}
		})
	}
}
