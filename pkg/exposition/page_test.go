package exposition

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

func TestUnchangedPageIsShared(t *testing.T) {
	f := gpus(2, 3)
	f.tick(time.Now())
	r := New(boardOf(f), Options{})
	for _, format := range []Format{Text, OpenMetrics, Protobuf} {
		for _, gzip := range []bool{false, true} {
			a, b := r.Page(format, gzip), r.Page(format, gzip)
			if a != b {
				t.Errorf("%v gzip %v: two pages of one generation", format, gzip)
			}
			f.tick(time.Now())
			c := r.Page(format, gzip)
			if c == a {
				t.Errorf("%v gzip %v: the page is the same after a tick", format, gzip)
			}
			for _, p := range []*Page{a, b, c} {
				p.Release()
			}
		}
	}
	a, b := r.Page(OpenMetrics, false), r.Page(OpenMetrics001, false)
	if a != b {
		t.Error("OpenMetrics 0.0.1 and 1.0.0 do not share pages")
	}
	a.Release()
	b.Release()
	p := r.Page(Format(200), false)
	if !strings.HasPrefix(string(p.Bytes()), "# HELP DCGM") {
		t.Errorf("page of an unknown format is %q", p.Bytes())
	}
	p.Release()
}

// TestEveryPartChangesThePage: whatever a page is made from, a change of it is
// seen by the next scrape, and only what the layout depends on builds it anew.
func TestEveryPartChangesThePage(t *testing.T) {
	f := gpus(1, 1)
	f.tick(time.Now())
	owners := &testOwners{version: 1, by: map[string][]Owner{}}
	self := &testSelf{version: 1, text: []byte("self 1\n")}
	accumulated := &testStore{version: 1}
	board := boardOf(f)
	r := New(board, Options{Owners: owners, Self: self})
	r.store = accumulated
	last, layout := page(t, r, Text), r.layout
	step := func(what string, builds bool, change func()) {
		t.Helper()
		change()
		got := page(t, r, Text)
		if got == last {
			t.Errorf("%s: the page is the same", what)
		}
		if built := r.layout != layout; built != builds {
			t.Errorf("%s: layout built anew: %v", what, built)
		}
		last, layout = got, r.layout
	}
	step("a row", false, func() { f.row[0]++; f.tick(time.Now()) })
	step("ourselves", false, func() { self.version++; self.text = []byte("self 2\n") })
	step("an owner", true, func() { owners.version++; owners.by[f.Devices[0].ID] = []Owner{ownerOf("pod", "p")} })
	step("who takes what", true, func() {
		owners.shares = &Shares{Set: 1, Series: []Share{share(f.Devices[0].ID, f.Columns[0].Field, "p")}, Values: []float64{1}}
	})
	step("how much it is", false, func() {
		owners.shares = &Shares{Set: 1, Series: owners.shares.Series, Values: []float64{2}}
	})
	step("a view", true, func() {
		g := gpus(2, 1)
		g.tick(time.Now())
		board.Store(viewOf(2, g))
		f = g
	})
	step("accumulated series", true, func() {
		one := 1.0
		accumulated.version++
		accumulated.series = append(accumulated.series, accumulatedValue(f.Source, &one))
		f.tick(time.Now()) // what is accumulated changes only with rows
	})
	if page(t, r, Text) != last || r.layout != layout {
		t.Error("the page changed by itself")
	}
}

func TestSelf(t *testing.T) {
	f := gpus(1, 1)
	f.tick(time.Now())
	self := &testSelf{
		text:        []byte("# TYPE warpgauge_x gauge\nwarpgauge_x 1\n"),
		openMetrics: []byte("# TYPE warpgauge_x gauge\nwarpgauge_x 1.0\n"),
		protob:      appendString(nil, familyName, "warpgauge_x"),
	}
	self.protob = append([]byte{byte(len(self.protob))}, self.protob...)
	with, without := New(boardOf(f), Options{Self: self}), New(boardOf(f), Options{})

	for format, tail := range map[Format]string{
		Text:        string(self.text),
		OpenMetrics: string(self.openMetrics) + "# EOF\n",
		Protobuf:    string(self.protob),
	} {
		ours := strings.TrimSuffix(page(t, without, format), "# EOF\n")
		if got := page(t, with, format); got != ours+tail {
			t.Errorf("%v: page is %q, want %q after ours", format, got, tail)
		}
	}
	if n := strings.Count(page(t, with, OpenMetrics), "# EOF"); n != 1 {
		t.Errorf("# EOF is there %d times", n)
	}
	empty := New(boardOf(), Options{})
	if got := page(t, empty, OpenMetrics); got != "# EOF\n" {
		t.Errorf("an empty OpenMetrics page is %q", got)
	}
	if got := page(t, empty, Text) + page(t, empty, Protobuf); got != "" {
		t.Errorf("empty pages are %q", got)
	}
}

func TestHeldPageDoesNotChange(t *testing.T) {
	f := gpus(4, 4)
	f.tick(time.Now())
	r := New(boardOf(f), Options{})
	type held struct {
		p    *Page
		want string
	}
	var all []held
	for n := range 10 {
		f.vary(n)
		f.tick(time.Now())
		p := r.Page(Text, n%2 == 1)
		all = append(all, held{p, string(p.Bytes())})
	}
	for n, h := range all {
		if string(h.p.Bytes()) != h.want {
			t.Errorf("page %d changed while it was held", n)
		}
		h.p.Release()
	}
	for z := range r.slots[Text] {
		s := &r.slots[Text][z]
		if len(s.spare) > maxSpare {
			t.Errorf("slot %d keeps %d unused pages", z, len(s.spare))
		}
	}
	// From now on two pages take turns.
	seen := map[*Page]bool{}
	for n := range 10 {
		f.vary(n)
		f.tick(time.Now())
		p := r.Page(Text, false)
		seen[p] = true
		p.Release()
	}
	if len(seen) > maxSpare+1 {
		t.Errorf("%d pages were used in turn", len(seen))
	}
}

func TestReleasedTwice(t *testing.T) {
	panics := func(what string, p *Page) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Errorf("%s: no panic", what)
			}
		}()
		p.Release()
	}
	f := gpus(1, 1)
	f.tick(time.Now())
	r := New(boardOf(f), Options{})
	p := r.Page(Text, false)
	p.Release()
	panics("the current page", p)

	r = New(boardOf(f), Options{})
	p = r.Page(Text, false)
	f.tick(time.Now())
	r.Page(Text, false).Release()
	p.Release()
	panics("an older page", p)
}

func TestStaleDevicesLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := gpus(2, 1)
		f.tick(time.Now())
		r := New(boardOf(f), Options{StaleAfter: 5 * time.Second})
		has := func(gpu string) bool { return strings.Contains(page(t, r, Text), `{gpu="`+gpu+`"`) }
		if !has("0") || !has("1") {
			t.Fatal("fresh devices are missing")
		}
		time.Sleep(3 * time.Second)
		f.stamps[0] = time.Now().UnixNano() // only the first is sampled now
		f.Ring.Append(time.Now().UnixNano(), f.stamps, f.row)
		if !has("0") || !has("1") {
			t.Error("devices are missing before they are stale")
		}
		time.Sleep(2*time.Second - 1)
		if !has("1") {
			t.Error("the second device left too early")
		}
		time.Sleep(1 * time.Nanosecond) // no tick, so nothing but the time has changed
		if !has("0") || has("1") {
			t.Error("the second device has not left alone")
		}
		time.Sleep(3 * time.Second)
		if got := page(t, r, Text); got != "" {
			t.Errorf("page is %q when all devices are stale", got)
		}
		p := r.Page(Text, true)
		p.Release()
		f.tick(time.Now())
		if !has("0") || !has("1") {
			t.Error("devices did not come back")
		}
	})
}

func TestNeverSampled(t *testing.T) {
	f := gpus(1, 1)
	r := New(boardOf(f), Options{})
	if got := page(t, r, Text); got != "" {
		t.Errorf("page before the first row is %q", got)
	}
	f.Ring.Append(1, f.stamps, f.row) // a row, but the device has never answered
	if got := page(t, r, Text); got != "" {
		t.Errorf("page of a device that never answered is %q", got)
	}
}

// TestDeviceIsReportedOnce: of two collectors that know a device, the first in
// the View shows it as long as it is fresh.
func TestDeviceIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second, third := gpus(2, 1), gpus(3, 1), gpus(2, 1)
		first.row[0], first.row[1] = 10, 11
		second.row[0], second.row[1], second.row[2] = 20, 21, 22
		third.row[0], third.row[1] = 30, 31
		r := New(boardOf(first, second, third), Options{StaleAfter: 5 * time.Second})
		f := func(want ...string) {
			t.Helper()
			for _, format := range []Format{Text, Protobuf} {
				values := parse(t, page(t, r, format), format).Values
				if len(values) != len(want) {
					t.Errorf("%v: got %v, want values %v", format, values, want)
				}
			}
			for _, w := range want {
				if text := page(t, r, Text); !strings.Contains(text, "} "+w+"\n") {
					t.Errorf("no value %s in\n%s", w, text)
				}
			}
		}
		second.tick(time.Now())
		third.tick(time.Now())
		f("20", "21", "22")
		first.tick(time.Now())
		f("10", "11", "22")
		time.Sleep(4 * time.Second)
		second.tick(time.Now())
		third.tick(time.Now())
		f("10", "11", "22")
		time.Sleep(time.Second)
		f("20", "21", "22") // the first is stale
		time.Sleep(4 * time.Second)
		third.tick(time.Now())
		time.Sleep(time.Second)
		f("30", "31")
		if left := r.layout.stats.duplicates; left != 0 {
			t.Errorf("%d series were left out as duplicates", left)
		}
	})
}

func TestGzip(t *testing.T) {
	r := newNode(t)
	for _, format := range []Format{Text, OpenMetrics, Protobuf} {
		p := r.Page(format, true)
		if got := gunzip(t, p.Bytes()); got != page(t, r, format) {
			t.Errorf("%v: the compressed page is another page", format)
		}
		if len(p.Bytes()) > len(page(t, r, format))/2 {
			t.Errorf("%v: compressed to %d of %d bytes", format, len(p.Bytes()), len(page(t, r, format)))
		}
		p.Release()
	}
}

// TestReload: a View that has just come shows what its rings hold.
func TestReload(t *testing.T) {
	old, next := gpus(1, 2), gpus(2, 1)
	old.tick(time.Now())
	next.tick(time.Now())
	board := boardOf(old)
	r := New(board, Options{})
	if n := len(parse(t, page(t, r, Text), Text).Values); n != 2 {
		t.Errorf("%d series before, want 2", n)
	}
	board.Store(viewOf(2, next))
	r.Sync(time.Now()) // builds the layout, has read no rows
	if n := len(parse(t, page(t, r, Text), Text).Values); n != 2 {
		t.Errorf("%d series after, want 2", n)
	}
	board.Store(&view.View{Version: 3})
	if got := page(t, r, Text); got != "" {
		t.Errorf("page without sources is %q", got)
	}
}

// TestUnreadableRow: a row that cannot be read leaves the one before on the page,
// and the page is made anew for everyone until it can.
func TestUnreadableRow(t *testing.T) {
	f := gpus(1, 1)
	mem := make([]atomic.Uint64, ring.Words(2, 1, 1))
	f.Ring = ring.New(mem, 2, 1, 1)
	r := New(boardOf(f), Options{})
	has := func(value string) {
		t.Helper()
		if got := page(t, r, Text); !strings.HasSuffix(got, "} "+value+"\n") {
			t.Errorf("no value %s in %q", value, got)
		}
	}
	f.row[0] = 1
	f.tick(time.Now())
	has("1")
	f.row[0] = 2
	f.tick(time.Now())
	slot := &mem[8+len(mem[8:])/2] // sequence of the second row
	whole := slot.Swap(1)          // being written
	has("1")
	slot.Store(whole)
	has("2")
}
