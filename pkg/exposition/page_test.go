package exposition

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/view"
	"warpgauge/pkg/view/viewtest"

	"warpgauge/pkg/ring"
)

// TestRowsAreRenderedEachInterval: one page serves all scrapes until it is minRenderInterval old and there are new
// rows, so that 200 sources that tick one after the other are rendered ten times a second.
func TestRowsAreRenderedEachInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := gpus(2, 3)
		f.Tick(time.Now())
		r := New(viewtest.Board(1, f), Options{})
		for _, format := range []Format{Text, OpenMetrics, Protobuf} {
			for _, gzip := range []bool{false, true} {
				same := func(what string, a, b []byte, want bool) {
					t.Helper()
					testkit.Equal(t, fmt.Sprintf("%v gzip %v, %s: the same page", format, gzip, what), want, &a[0] == &b[0])
				}
				time.Sleep(minRenderInterval)
				f.Tick(time.Now())
				a := r.Page(format, gzip)
				same("no new row", a, r.Page(format, gzip), true)
				f.Tick(time.Now())
				same("a new row at once", a, r.Page(format, gzip), true)
				time.Sleep(minRenderInterval - 1)
				f.Tick(time.Now())
				same("more rows just before the interval ends", a, r.Page(format, gzip), true)
				time.Sleep(time.Nanosecond)
				b := r.Page(format, gzip)
				same("after the interval", a, b, false)
				time.Sleep(time.Second)
				same("no new row for a second", b, r.Page(format, gzip), true)
			}
		}
	})
}

// TestEveryPartChangesThePage: the next scrape shows a change of any part of a page, and only parts of the
// layout cause a new layout.
func TestEveryPartChangesThePage(t *testing.T) {
	f := gpus(1, 1)
	f.Tick(time.Now())
	owners := &testOwners{version: 1, by: map[string][]view.Owner{}}
	self := &testSelf{version: 1, text: []byte("self 1\n")}
	board := viewtest.Board(1, f)
	accumulated := &testStore{board: board, version: 1}
	r := New(board, Options{Owners: owners, Self: self})
	r.store = accumulated
	last, layout := pageOf(t, r, Text), r.layout
	step := func(what string, builds bool, change func()) {
		t.Helper()
		change()
		got := string(r.Page(Text, false)) // at once: only new rows may wait
		testkit.ErrorIf(t, got == last, "%s: the page is the same", what)
		testkit.Equal(t, what+": built a new layout", builds, r.layout != layout)
		last, layout = got, r.layout
	}
	step("a row", false, func() { f.Row[0]++; f.Tick(time.Now()); age(r) })
	step("ourselves", false, func() { self.version++; self.text = []byte("self 2\n") })
	step("an owner", true, func() { owners.version++; owners.by[f.Devices[0].ID] = []view.Owner{ownerOf("pod", "p")} })
	step("who takes what", true, func() {
		owners.shares = &view.Shares{Set: 1, Series: []view.Share{share(f.Devices[0].ID, f.Columns[0].Field, "p")}, Values: []float64{1}}
	})
	step("how much it is", false, func() {
		owners.shares = &view.Shares{Set: 1, Series: owners.shares.Series, Values: []float64{2}}
	})
	step("a view", true, func() {
		g := gpus(2, 1)
		g.Tick(time.Now())
		board.Store(viewtest.View(2, g))
		f = g
	})
	step("accumulated series", true, func() {
		one := 1.0
		accumulated.version++
		accumulated.series = append(accumulated.series, accumulatedValue(f.Source, &one))
		f.Tick(time.Now()) // accumulated series change only with rows
		age(r)
	})
	testkit.ErrorIf(t, pageOf(t, r, Text) != last || r.layout != layout, "the page changed by itself")
}

// TestSelf: our own part comes last, before the end marker. Pages without devices are empty.
func TestSelf(t *testing.T) {
	f := gpus(1, 1)
	f.Tick(time.Now())
	self := &testSelf{text: []byte("# TYPE x gauge\nx 1\n"), openMetrics: []byte("# TYPE x gauge\nx 1.0\n"), protob: []byte("\x03\x0a\x01x")}
	with, without, empty := New(viewtest.Board(1, f), Options{Self: self}), New(viewtest.Board(1, f), Options{}), New(viewtest.Board(1), Options{})
	for format, c := range map[Format]struct{ own, end string }{Text: {string(self.text), ""}, OpenMetrics: {string(self.openMetrics), "# EOF\n"}, Protobuf: {string(self.protob), ""}} {
		devices := strings.TrimSuffix(pageOf(t, without, format), c.end)
		testkit.Equal(t, fmt.Sprintf("%v: page with own metrics after the devices", format), devices+c.own+c.end, pageOf(t, with, format))
		testkit.Equal(t, fmt.Sprintf("%v: an empty page", format), c.end, pageOf(t, empty, format))
	}
}

// TestDeviceIsReportedOnce: if two collectors know a device, the first one in the View shows it while it is fresh.
func TestDeviceIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second, third := gpus(2, 1), gpus(3, 1), gpus(2, 1)
		first.Row[0], first.Row[1] = 10, 11
		second.Row[0], second.Row[1], second.Row[2] = 20, 21, 22
		third.Row[0], third.Row[1] = 30, 31
		r := New(viewtest.Board(1, first, second, third), Options{StaleAfter: 5 * time.Second})
		f := func(want ...string) {
			t.Helper()
			for _, format := range []Format{Text, Protobuf} {
				values := parse(t, pageOf(t, r, format), format).Values
				testkit.ErrorIf(t, len(values) != len(want), "%v: got %v, want values %v", format, values, want)
			}
			for _, w := range want {
				testkit.Has(t, "page", pageOf(t, r, Text), "} "+w+"\n")
			}
		}
		second.Tick(time.Now())
		third.Tick(time.Now())
		f("20", "21", "22")
		first.Tick(time.Now())
		f("10", "11", "22")
		time.Sleep(4 * time.Second)
		second.Tick(time.Now())
		third.Tick(time.Now())
		f("10", "11", "22")
		time.Sleep(time.Second)
		f("20", "21", "22") // the first is stale
		time.Sleep(4 * time.Second)
		third.Tick(time.Now())
		time.Sleep(time.Second)
		f("30", "31")
		time.Sleep(4 * time.Second) // no tick, so only the time has changed
		f()
		first.Tick(time.Now())
		f("10", "11")
		testkit.Equal(t, "series left out as duplicates", 0, r.layout.stats.duplicates)
	})
}

// TestUnreadableRow: if a row cannot be read, the page keeps the previous row.
func TestUnreadableRow(t *testing.T) {
	f := gpus(1, 1)
	mem := make([]atomic.Uint64, ring.Words(2, 1, 1))
	f.Ring = ring.New(mem, 2, 1, 1)
	r := New(viewtest.Board(1, f), Options{})
	has := func(value string) {
		t.Helper()
		got := pageOf(t, r, Text)
		testkit.ErrorIf(t, !strings.HasSuffix(got, "} "+value+"\n"), "no value %s in %q", value, got)
	}
	f.Row[0] = 1
	f.Tick(time.Now())
	has("1")
	f.Row[0] = 2
	f.Tick(time.Now())
	slot := &mem[8+len(mem[8:])/2] // sequence of the second row
	whole := slot.Swap(1)          // being written
	has("1")
	slot.Store(whole)
	f.Row[0] = 3
	f.Tick(time.Now())
	has("3")
}
