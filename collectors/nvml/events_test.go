//go:build linux && cgo

package nvml

import (
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// scriptedEvents is an event set that tells what the test says, and the opener
// of such sets.
type scriptedEvents struct {
	mu      sync.Mutex
	waiting []heardEvent
	fail    error // of next
	refuse  error // of open
	opened  int
	closed  int
	hang    chan struct{} // next blocks until it is closed
}

func (s *scriptedEvents) open() (eventSet, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		return nil, s.refuse
	}
	s.opened++
	return s, nil
}

func (s *scriptedEvents) next() (heardEvent, error) {
	s.mu.Lock()
	hang := s.hang
	s.mu.Unlock()
	if hang != nil {
		<-hang
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return heardEvent{}, s.fail
	}
	if len(s.waiting) == 0 {
		return heardEvent{}, nil
	}
	e := s.waiting[0]
	s.waiting = s.waiting[1:]
	return e, nil
}

func (s *scriptedEvents) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed++
}

func (s *scriptedEvents) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *scriptedEvents) xid(code uint64, gi, ci uint32) {
	s.set(func() { s.waiting = append(s.waiting, heardEvent{xidEvent, event{code: code, gi: gi, ci: ci}}) })
}

func (s *scriptedEvents) mig() {
	s.set(func() { s.waiting = append(s.waiting, heardEvent{kind: migEvent}) })
}

func readings(ids ...field.ID) []field.Reading {
	var out []field.Reading
	for _, id := range ids {
		d, ok := field.ByID(id)
		if !ok {
			panic("no such field")
		}
		out = append(out, field.Reading{Desc: d, Default: true})
	}
	return out
}

const testUUID = "GPU-11111111-2222-3333-4444-555555555555"

// joinScripted makes a part of a GPU with two MIG instances, 3/0 and 5/0.
func joinScripted(b *boards, s *scriptedEvents, log *zap.Logger) *eventsPart {
	place := placement{[]instanceID{{gi: 3, ci: 0, device: 1}, {gi: 5, ci: 0, device: 2}}}
	return newEventsPart(b, b.join(testUUID, s.open, nil, log), 3, place, readings(field.XIDErrors, field.XIDEvent), log)
}

// sampled is what a row says: the last XIDs and the events, by device.
type sampled struct{ Last, Events map[int][]float64 }

func sampleEvents(t *testing.T, p *eventsPart) (sampled, error) {
	t.Helper()
	row, due := make([]float64, len(p.columns())), make([]bool, len(p.columns()))
	for i := range row {
		row[i], due[i] = math.NaN(), true
	}
	err := p.sample(row, due)
	out := sampled{map[int][]float64{}, map[int][]float64{}}
	for i, c := range p.columns() {
		to := out.Events
		if c.Field == field.XIDErrors {
			to = out.Last
		}
		if !math.IsNaN(row[i]) {
			to[c.Device] = append(to[c.Device], row[i])
		}
	}
	return out, err
}

func wantEvents(t *testing.T, when string, p *eventsPart, want sampled) {
	t.Helper()
	got, err := sampleEvents(t, p)
	if err != nil {
		t.Errorf("%s: %v", when, err)
	}
	for _, m := range []*map[int][]float64{&want.Last, &want.Events} {
		if *m == nil {
			*m = map[int][]float64{}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// heard lets the listening goroutines ask once more.
func heard() {
	time.Sleep(listenEvery)
	synctest.Wait()
}

type byDevice = map[int][]float64

func TestEventsOfARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b boards
		s := &scriptedEvents{}
		p := joinScripted(&b, s, zap.NewNop())
		heard()
		wantEvents(t, "before any XID", p, sampled{})

		s.xid(31, noInstance, noInstance)
		s.xid(13, 3, 0)
		s.xid(43, 5, 7)          // a compute instance that is no device of ours
		s.xid(94, 9, 0)          // an instance that is none
		s.xid(45, 3, noInstance) // a whole GPU instance
		heard()
		last := byDevice{0: {94}, 1: {45}, 2: {43}}
		wantEvents(t, "after five XIDs", p, sampled{last, byDevice{0: {31, 94}, 1: {13, 45}, 2: {43}}})
		wantEvents(t, "one tick later", p, sampled{Last: last})

		for code := range uint64(6) {
			s.xid(100+code, noInstance, noInstance)
		}
		s.xid(109, 3, 0)
		heard()
		last = byDevice{0: {105}, 1: {109}, 2: {43}}
		wantEvents(t, "the first row of a storm", p, sampled{last, byDevice{0: {100, 101, 102, 103}}})
		wantEvents(t, "the second row of a storm", p, sampled{last, byDevice{0: {104, 105}, 1: {109}}})
		wantEvents(t, "after a storm", p, sampled{Last: last})
		p.close()
		if s.opened != 1 || s.closed != 1 {
			t.Errorf("%d event sets were opened, %d closed, want 1 and 1", s.opened, s.closed)
		}
	})
}

// TestEventsNotDue: an event waits for a row in which its cell is due.
func TestEventsNotDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b boards
		s := &scriptedEvents{}
		p := joinScripted(&b, s, zap.NewNop())
		defer p.close()
		s.xid(31, noInstance, noInstance)
		heard()
		row, due := make([]float64, len(p.columns())), make([]bool, len(p.columns()))
		if err := p.sample(row, due); err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(row, func(v float64) bool { return v != 0 }) {
			t.Errorf("a sample in which nothing is due wrote %v", row)
		}
		wantEvents(t, "when due", p, sampled{byDevice{0: {31}}, byDevice{0: {31}}})
	})
}

func TestEventsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zap.WarnLevel)
		var b boards
		s := &scriptedEvents{}
		p := joinScripted(&b, s, zap.New(core))
		defer p.close()
		const more = 10
		for i := range uint64(logSize + more) {
			s.xid(1+i%3, noInstance, noInstance)
		}
		heard()
		heard() // a storm is read in portions
		var told int
		for range logSize {
			got, err := sampleEvents(t, p)
			if err != nil {
				t.Fatal(err)
			}
			told += len(got.Events[0])
		}
		if told != logSize {
			t.Errorf("rows told of %d XIDs, want %d", told, logSize)
		}
		lines := logged.FilterField(zap.Uint64("lost", more)).All()
		if len(lines) != 1 {
			t.Errorf("got %d lines that say that %d are lost, want 1", len(lines), more)
		}
		if n := logged.FilterMessage("XID").Len(); n != 3 {
			t.Errorf("got %d lines about XIDs of 3 codes, want one for each", n)
		}
	})
}

func TestEventsOfMIG(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b boards
		s := &scriptedEvents{}
		p := joinScripted(&b, s, zap.NewNop())
		s.xid(31, 3, 0)
		s.xid(79, noInstance, noInstance)
		heard()
		wantEvents(t, "before the change", p, sampled{byDevice{0: {79}, 1: {31}}, byDevice{0: {79}, 1: {31}}})
		s.mig()
		heard()
		for range 2 {
			if _, err := sampleEvents(t, p); !errors.Is(err, collector.ErrColumnsChanged) {
				t.Errorf("sample after a change of the MIG configuration: got %v, want ErrColumnsChanged", err)
			}
		}
		again := joinScripted(&b, s, zap.NewNop())
		wantEvents(t, "the new source, whose instances are new", again, sampled{Last: byDevice{0: {79}}})
		p.close()
		again.close()
	})
}

// TestEventsUnsupported: a GPU without events says so to everyone who comes, and
// is asked once.
func TestEventsUnsupported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b boards
		asked := 0
		open := func() (eventSet, error) { asked++; return nil, errNoEvents }
		first := b.join(testUUID, open, nil, zap.NewNop())
		second := b.join(testUUID, open, nil, zap.NewNop())
		for i, x := range []*board{first, second} {
			if err := x.unsupported(); !errors.Is(err, errNoEvents) {
				t.Errorf("source %d of a GPU without events is told %v", i, err)
			}
		}
		time.Sleep(time.Hour)
		b.leave(first)
		b.leave(second)
		if asked != 1 {
			t.Errorf("a GPU without events was asked %d times", asked)
		}
	})
}

// TestEventsInterrupted: a set that fails is opened again, and while there is
// none the last XID is unknown.
func TestEventsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zap.WarnLevel)
		var b boards
		s := &scriptedEvents{}
		p := joinScripted(&b, s, zap.New(core))
		s.xid(79, noInstance, noInstance)
		heard()
		wantEvents(t, "before the failure", p, sampled{byDevice{0: {79}}, byDevice{0: {79}}})
		gone := errors.New("GPU is lost")
		s.set(func() { s.fail, s.refuse = gone, gone })
		heard()
		wantEvents(t, "while the event set does not open", p, sampled{})
		time.Sleep(10 * time.Minute)
		if n := logged.FilterMessageSnippet("not seen").Len(); n != 1 {
			t.Errorf("got %d lines about one interruption, want 1: %v", n, logged.All())
		}
		s.set(func() { s.fail, s.refuse = nil, nil })
		time.Sleep(lastListenPause)
		heard()
		wantEvents(t, "when it is open again", p, sampled{Last: byDevice{0: {79}}})
		s.xid(31, noInstance, noInstance)
		heard()
		wantEvents(t, "an XID after that", p, sampled{byDevice{0: {31}}, byDevice{0: {31}}})
		p.close()
		if s.opened != s.closed {
			t.Errorf("%d event sets were opened and %d closed", s.opened, s.closed)
		}
	})
}

// TestEventsAgain: a new source has its GPU's event set opened at once.
func TestEventsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b boards
		s := &scriptedEvents{refuse: errors.New("GPU is lost")}
		p := joinScripted(&b, s, zap.NewNop())
		time.Sleep(time.Hour)
		synctest.Wait()
		s.set(func() { s.refuse = nil })
		heir := joinScripted(&b, s, zap.NewNop())
		p.close()
		heard()
		s.xid(31, noInstance, noInstance)
		heard()
		wantEvents(t, "an XID after the GPU came back", heir, sampled{byDevice{0: {31}}, byDevice{0: {31}}})
		heir.close()
	})
}

// TestEventsHang: a call that hangs delays neither a new source nor Close for
// ever, and its library stays held until it returns.
func TestEventsHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zap.WarnLevel)
		var b boards
		held := 0
		hold := func() func() { held++; return func() { held-- } }
		release := make(chan struct{})
		start := time.Now()
		x := b.join(testUUID, func() (eventSet, error) { <-release; return nil, errNoEvents }, hold, zap.New(core))
		if err := x.unsupported(); err != nil {
			t.Errorf("a GPU that does not answer is said to have no events: %v", err)
		}
		b.leave(x)
		if took := time.Since(start); took > 2*listenPatience {
			t.Errorf("a GPU that hangs kept Open and Close for %v", took)
		}
		if logged.FilterMessageSnippet("abandoned").Len() != 1 {
			t.Errorf("nothing is logged about a call that was abandoned: %v", logged.All())
		}
		synctest.Wait()
		if held != 1 {
			t.Errorf("the library is held %d times while a call hangs, want once", held)
		}
		close(release)
		synctest.Wait()
		if held != 0 {
			t.Errorf("the library is held %d times in the end", held)
		}
	})
}

// TestEventsAllocations: a sample allocates nothing.
func TestEventsAllocations(t *testing.T) {
	var b boards
	s := &scriptedEvents{}
	p := joinScripted(&b, s, zap.NewNop())
	defer p.close()
	row, due := make([]float64, len(p.columns())), make([]bool, len(p.columns()))
	for i := range due {
		due[i] = true
	}
	p.board.add(event{code: 31, gi: 3})
	n := testing.AllocsPerRun(100, func() {
		p.board.add(event{code: 31, gi: 3})
		if err := p.sample(row, due); err != nil {
			t.Error(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations per sample with an XID, want 0", n)
	}
}
