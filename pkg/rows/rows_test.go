package rows

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
	"warpgauge/pkg/view/viewtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	start = time.Unix(1_700_000_000, 0)
	nan   = math.NaN()
)

func at(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }

const power = field.ID(155)

// newSource returns a source with one power reading per device and further columns.
func newSource(name string, size int, ids []string, columns ...collector.Column) *viewtest.Feed {
	s := &view.Source{Collector: name, Interval: time.Second}
	for i, id := range ids {
		s.Devices = append(s.Devices, collector.Device{ID: id, Level: field.GPU})
		s.Columns = append(s.Columns, collector.Column{Device: i, Field: power})
	}
	s.Columns = append(s.Columns, columns...)
	return viewtest.New(s, size)
}

// account is a Follower that records what it receives.
type account struct {
	sources []Source
	rows    []string // COLLECTOR SECOND: device=ms, - not sampled, . not supplied; ! not new
	xids    []float64
	gaps    int
	binds   int
}

func (a *account) Bind(_ *view.View, sources []Source, _ time.Time) {
	a.sources = sources
	a.binds++
}

func (a *account) Row(row *Row) {
	s := &a.sources[row.Source]
	text := fmt.Sprintf("%s %v:", s.Collector, time.Unix(0, row.Time).Sub(start).Seconds())
	for i, d := range row.Devices {
		text += " " + s.Devices[i].ID + "="
		switch {
		case !d.Supplied:
			text += "."
		case d.Sampled:
			text += fmt.Sprint(d.Millis)
		default:
			text += "-"
		}
		if d.Supplied && !d.New {
			text += "!"
		}
	}
	a.rows = append(a.rows, text)
	for _, x := range row.XIDs {
		a.xids = append(a.xids, x.Code)
	}
	a.gaps += len(row.Gaps)
}

// want compares the rows since the last call.
func (a *account) want(t *testing.T, what string, want ...string) {
	t.Helper()
	testkit.Equal(t, what+": rows", want, a.rows)
	a.rows = nil
}

// newReader returns a Reader, and a function that shows a View, unless it is nil, and reads.
func newReader(bus *events.Bus) (*Reader, func(v *view.View, now time.Time)) {
	board := new(view.Board)
	r := New(board, bus)
	return r, func(v *view.View, now time.Time) {
		if v != nil && v != board.Load() {
			board.Store(v)
		}
		r.Sync(now)
	}
}

func follow(r *Reader) *account {
	a := &account{}
	r.Follow(a)
	return a
}

func TestRowsAndTheTimeTheyApply(t *testing.T) {
	r, read := newReader(nil)
	a := follow(r)
	s := newSource("x", 16, []string{"a", "b"})
	v := viewtest.View(0, s)
	s.Tick(at(0))
	s.Tick(at(1), 1)
	s.Tick(at(3), 1) // within three intervals
	s.Tick(at(9))    // after more
	read(v, at(9))
	a.want(t, "first reading", "x 0: a=1000 b=1000", "x 1: a=1000 b=-", "x 3: a=2000 b=-", "x 9: a=1000 b=1000")
	read(v, at(9))
	a.want(t, "nothing new")
	testkit.Equal(t, "bindings of one View", 1, a.binds)
	s.Tick(at(9.5))
	read(viewtest.View(0, s), at(10))
	a.want(t, "another View with the same ring", "x 9.5: a=500 b=500")
	s.Tick(at(2)) // the clock was set back
	read(nil, at(2))
	a.want(t, "a clock that was set back", "x 2: a=1000 b=1000")
}

// TestOverlap: a source that takes over may hold rows from before the takeover.
func TestOverlap(t *testing.T) {
	r, read := newReader(nil)
	a := follow(r)
	one, two := newSource("one", 16, []string{"a"}), newSource("two", 16, []string{"a"})
	for i := range 3 {
		one.Tick(at(float64(i)))
		two.Tick(at(float64(i)))
	}
	read(viewtest.View(0, one), at(2))
	a.want(t, "the first source", "one 0: a=1000", "one 1: a=1000", "one 2: a=1000")
	one.Tick(at(3)) // not read when the View changes
	two.Tick(at(3))
	two.Tick(at(4))
	read(viewtest.View(0, two), at(4))
	a.want(t, "the second source", "one 3: a=1000", "two 0: a=-!", "two 1: a=-!", "two 2: a=-!", "two 3: a=-!", "two 4: a=1000")
	back := newSource("back", 16, []string{"a"}) // an hour back: the clock was set
	back.Tick(at(-3600))
	read(viewtest.View(0, back), at(-3600))
	a.want(t, "a clock that was set back", "back -3600: a=1000")
}

func TestTwoSourcesOfADevice(t *testing.T) {
	r, read := newReader(nil)
	a := follow(r)
	one, two := newSource("one", 16, []string{"a"}), newSource("two", 16, []string{"a", "b", "b"})
	one.Tick(at(0))
	two.Tick(at(0))
	read(viewtest.View(0, one, two), at(0))
	a.want(t, "both", "one 0: a=1000", "two 0: a=. b=1000 b=.")
	testkit.Equal(t, "devices that are supplied", "[true] [false true false]", fmt.Sprint(a.sources[0].Supplies, a.sources[1].Supplies))
	two.Tick(at(1), 0) // read before the View changes
	read(viewtest.View(0, two), at(1))
	a.want(t, "the first has left", "two 1: a=. b=1000 b=.")
	two.Tick(at(2), 0) // the second source's stamp of a is old
	read(nil, at(2))
	a.want(t, "only the second", "two 2: a=- b=1000 b=.")
	two.Tick(at(3))
	read(nil, at(3))
	a.want(t, "when it samples both", "two 3: a=3000 b=1000 b=.")
}

// TestRingIsLapped: overwritten rows are counted and never delivered.
func TestRingIsLapped(t *testing.T) {
	r, read := newReader(nil)
	a := follow(r)
	s := newSource("x", 4, []string{"a"})
	v := viewtest.View(0, s)
	read(v, at(0))
	for i := range 10 {
		s.Tick(at(float64(i)))
	}
	read(v, at(10))
	testkit.Equal(t, "rows", 4, len(a.rows))
	testkit.Equal(t, "overruns", uint64(6), r.Overruns())
	read(viewtest.View(0), at(11))
	testkit.Equal(t, "overruns after the ring has left", uint64(6), r.Overruns())
}

// TestViewsBetween: rows of sources that were on the board between two readings are read.
func TestViewsBetween(t *testing.T) {
	var board view.Board
	r := New(&board, nil)
	a := follow(r)
	for i := range 5 {
		s := newSource(fmt.Sprint("s", i), 16, []string{"a"})
		s.Tick(at(float64(i)))
		board.Store(viewtest.View(0, s))
	}
	r.Sync(at(5))
	a.want(t, "five sessions", "s0 0: a=1000", "s1 1: a=1000", "s2 2: a=1000", "s3 3: a=1000", "s4 4: a=1000")
	testkit.Equal(t, "bindings", 5, a.binds)
	late := follow(r)
	s := newSource("late", 16, []string{"a"})
	s.Tick(at(6))
	board.Store(viewtest.View(0, s))
	r.Sync(at(6))
	late.want(t, "a follower that came late", "late 6: a=2000")
	testkit.Equal(t, "bindings of the one that came late", 2, late.binds)
}

// TestXIDs: XIDs of a device that could not be sampled count, repeats of the last XID do not, and a source
// with a history fills the gap of another one.
func TestXIDs(t *testing.T) {
	r, read := newReader(nil)
	a := follow(r)
	micros := func(seconds float64) float64 { return float64(at(seconds).UnixMicro()) }
	newXIDs := func(name string) *viewtest.Feed {
		return newSource(name, 16, []string{"a"}, collector.Column{Field: field.XIDEvent}, collector.Column{Field: field.XIDsSince}, collector.Column{Field: field.XIDsUntil})
	}
	f := func(what string, gaps int, want ...float64) {
		t.Helper()
		testkit.ErrorIf(t, !slices.Equal(a.xids, want) || a.gaps != gaps, "%s: XIDs %v and %d gaps, want %v and %d", what, a.xids, a.gaps, want, gaps)
		a.xids, a.gaps = nil, 0
	}
	one := newXIDs("one")
	one.Row[2] = micros(0)
	one.Tick(at(0))
	one.Row[1] = 79
	one.Tick(at(1), 0)
	read(viewtest.View(0, one), at(1))
	f("a lost device", 0, 79)
	two := newXIDs("two")
	two.Row[2] = micros(10)
	two.Tick(at(11))
	read(viewtest.View(0, two), at(11))
	f("a source that began later", 1)
	three := newXIDs("three")
	for _, x := range []struct{ code, at float64 }{{63, 5}, {64, 10.5}} { // source two reported the second one
		three.Row[1], three.Row[3] = x.code, micros(x.at)
		three.Tick(at(x.at))
	}
	read(viewtest.View(0, three), at(12))
	f("a source with a history", 0, 63)
	four := newSource("four", 16, []string{"a"}, collector.Column{Field: field.XIDsSince}, collector.Column{Field: field.XIDEvent})
	four.Row[1], four.Row[2] = micros(5), 65
	four.Tick(at(5))
	read(viewtest.View(0, four), at(12))
	f("a row in the gap of a source that does not say up to when it has XIDs", 0)
	// A source that hangs repeats its stamps. Another one, open all the time, has the XIDs of that time.
	other := newSource("other", 16, []string{"a"}, collector.Column{Field: field.XIDEvent}, collector.Column{Field: field.XIDsSince})
	for second, code := range []float64{31, 0, 48, 0} { // seconds 20 to 23
		other.Row[1], other.Row[2] = code, micros(1)
		other.Tick(at(float64(20 + second)))
	}
	hangs := newXIDs("hangs")
	hangs.Row[2] = micros(1)
	hangs.Row[1], hangs.Row[3] = 31, micros(20)
	hangs.Tick(at(20))
	hangs.Row[1] = math.NaN()
	for second := 21; second < 24; second++ {
		hangs.Tick(at(float64(second)), 0)
	}
	read(viewtest.View(0, hangs), at(23))
	f("a source that hangs", 0, 31)
	read(viewtest.View(0, other), at(24))
	f("the source that was open meanwhile", 0, 48)
	read(viewtest.View(0, hangs), at(25))
	f("again the first", 0)
	// Its rows have a history. Those of a time without samples, or in a gap, count once each, though rows come later.
	for i, code := range []float64{61, 62, 64} {
		hangs.Row[1], hangs.Row[3] = code, micros(30.1+.1*float64(i))
		hangs.Tick(at(float64(31+i)), 0)
	}
	hangs.Row[1] = math.NaN()
	for second := 30; second < 40; second++ {
		other.Row[1] = math.NaN()
		other.Tick(at(float64(second)), 0)
	}
	read(viewtest.View(0, other), at(40))
	read(viewtest.View(0, hangs), at(41))
	f("a storm while the other source hung", 0, 61, 62, 64)
	read(viewtest.View(0, other), at(42))
	read(viewtest.View(0, hangs), at(43))
	f("after one more change", 0)
}

// TestForgotten: a device that comes back within a day continues; memory is bounded.
func TestForgotten(t *testing.T) {
	var told forgotten
	c := Cursor{forgetters: []Forgetter{&told}}
	one := newSource("one", 4, []string{"a"})
	c.Bind(viewtest.View(0, one), at(0))
	c.Bind(viewtest.View(0), at(0))
	c.Bind(viewtest.View(0), at(86399))
	testkit.Equal(t, "devices that are remembered for a day", 1, len(c.progress))
	c.Bind(viewtest.View(0), at(86401))
	testkit.ErrorIf(t, len(c.progress) != 0 || told != 1, "a device is remembered for more than a day")
	for i := range 60 {
		ids := make([]string, 100)
		for j := range ids {
			ids[j] = fmt.Sprint(i, "-", j)
		}
		c.Bind(viewtest.View(0, newSource("x", 2, ids)), at(90000))
	}
	got := len(c.progress)
	testkit.ErrorIf(t, got != retainMax+100 || told != forgotten(1+6000-got), "%d devices are remembered, want %d; followers heard of %d", got, retainMax+100, told)
}

// forgotten counts the devices that the Cursor has forgotten.
type forgotten int

func (n *forgotten) Forget(string) { *n++ }

// TestCursor: Skip skips the existing rows, and the reader may stop after any row.
func TestCursor(t *testing.T) {
	one, two := newSource("one", 8, []string{"a"}), newSource("two", 8, []string{"b"})
	for i := range 4 {
		one.Tick(at(float64(i)))
		two.Tick(at(float64(i)))
	}
	var c Cursor
	c.Bind(viewtest.View(0, one, two, &viewtest.Feed{Source: &view.Source{Ring: one.Ring}}), at(4)) // the last source does not fit its ring
	c.Skip()
	var row Row
	testkit.Equal(t, "there is a row behind the newest", false, c.Next(&row))
	one.Tick(at(4))
	one.Tick(at(5))
	two.Tick(at(4))
	var got []string
	for range 3 {
		testkit.FatalIf(t, !c.Next(&row), "a row is missing")
		got = append(got, fmt.Sprint(row.Source, " ", time.Unix(0, row.Time).Sub(start).Seconds()))
	}
	want := []string{"0 4", "0 5", "1 4"}
	testkit.ErrorIf(t, !slices.Equal(got, want) || c.Next(&row), "got rows %q, want %q and no more", got, want)
}

// TestPublished: events wait for Run, even if another goroutine reads their rows. Run does not wait for its timer.
func TestPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var board view.Board
		var bus events.Bus
		sub := bus.Subscribe(16)
		r := New(&board, &bus)
		s := newSource("x", 64, []string{"a"}, collector.Column{Field: field.XIDEvent}, collector.Column{Field: field.ClockEventReasons})
		board.Store(viewtest.View(0, s))
		for i, mask := range []float64{4, 0, 5, nan, 5, 1} {
			s.Row[1], s.Row[2] = nan, mask
			if i == 3 {
				s.Row[1] = 1e300
			}
			s.Tick(at(float64(i)))
		}
		r.Sync(at(6))
		testkit.Equal(t, "events that were published by who has read", 0, len(sub.C))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		synctest.Wait()
		var got []string
		for len(sub.C) > 0 {
			e := <-sub.C
			got = append(got, fmt.Sprint(e.Kind, " ", e.Source, " ", e.Device.ID, " ", e.Code, " ", e.Reason, " ", e.Time.Sub(start).Seconds()))
		}
		testkit.Equal(t, "events", []string{"clock_event x a 0 gpu_idle 2", "clock_event x a 0 power_cap 2", "xid x a -1  3"}, got)
		s.Row[1] = 48
		s.Tick(at(7))
		r.Sync(at(7)) // as a scrape does
		synctest.Wait()
		testkit.Equal(t, "more events before the next tick", 1, len(sub.C))
		cancel()
		testkit.Must(t, <-done)
	})
}

// counter counts rows by ring, each once.
type counter struct {
	account
	seen map[string]int
}

func (c *counter) Row(row *Row) {
	if row.Devices[0].Sampled {
		c.seen[fmt.Sprint(c.sources[row.Source].Devices[0].ID, " ", row.Time)]++
	}
}

// TestHammer runs writers, readers and new Views at the same time; each row comes once.
func TestHammer(t *testing.T) {
	var board view.Board
	var bus events.Bus
	sub := bus.Subscribe(2000)
	r := New(&board, &bus)
	c := &counter{seen: map[string]int{}}
	r.Follow(c)
	ctx, cancel := context.WithCancel(t.Context())
	var others, writers sync.WaitGroup
	others.Go(func() { _ = r.Run(ctx) })
	for range 2 {
		others.Go(func() {
			for ctx.Err() == nil {
				r.Sync(time.Now())
				_ = r.Overruns()
			}
		})
	}
	const sessions, rows = 30, 50 // a View remembers 32
	writers.Go(func() {
		for i := range sessions {
			s := newSource("x", 64, []string{"a"}, collector.Column{Field: field.XIDEvent})
			board.Store(viewtest.View(0, s))
			for j := range rows {
				s.Row[1] = 13
				s.Tick(at(float64(i*rows + j)))
			}
		}
	})
	writers.Wait()
	r.Sync(time.Now())
	cancel()
	others.Wait()
	r.publish()
	testkit.Equal(t, "rows that came", sessions*rows, len(c.seen))
	for row, n := range c.seen {
		testkit.Equal(t, "times that row "+row+" came", 1, n)
	}
	testkit.Equal(t, "XIDs that were published", sessions*rows, len(sub.C))
}

// TestFullQueue: events for which the Reader has no room are counted.
func TestFullQueue(t *testing.T) {
	r, read := newReader(new(events.Bus))
	r.found = make([]events.Event, maxQueue)
	s := newSource("x", 16, []string{"a"}, collector.Column{Field: field.XIDEvent})
	s.Row[1] = 79
	s.Tick(at(0))
	read(viewtest.View(0, s), at(0))
	testkit.Equal(t, "events that were dropped", uint64(1), r.Dropped())
}

// TestSteadyStateAllocatesNothing: rows without events cost no memory.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	_, read := newReader(new(events.Bus))
	s := newSource("x", 64, []string{"a"}, collector.Column{Field: field.XIDEvent}, collector.Column{Field: field.ClockEventReasons})
	s.Row[2] = 4
	v, now := viewtest.View(0, s), start
	allocations := testing.AllocsPerRun(200, func() { now = now.Add(time.Second); s.Tick(now); read(v, now) })
	testkit.Equal(t, "allocations per row", 0.0, allocations)
}

// TestFastWriter: a source that writes during the reading does not block the next source.
func TestFastWriter(t *testing.T) {
	one, two := newSource("one", 4, []string{"a"}), newSource("two", 4, []string{"b"})
	var c Cursor
	c.Bind(viewtest.View(0, one, two), at(0))
	two.Tick(at(0))
	var row Row
	for i := range 100 {
		one.Tick(at(float64(i)))
		if c.Next(&row) && row.Source == 1 {
			return
		}
	}
	t.Error("the second source's row did not come")
}

// TestRowsAfterBinding: only rows from before the binding can be in another ring. A later row is new, even if the clock
// was set back.
func TestRowsAfterBinding(t *testing.T) {
	r, read := newReader(nil)
	a := follow(r)
	one, two := newSource("one", 16, []string{"a"}), newSource("two", 16, []string{"a"})
	one.Tick(at(9))
	read(viewtest.View(0, one), at(9))
	read(viewtest.View(0, two), at(9))
	two.Tick(at(8))
	read(nil, at(9))
	a.want(t, "a clock that was set back by a second", "one 9: a=1000", "two 8: a=1000")
}
