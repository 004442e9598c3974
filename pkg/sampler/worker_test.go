package sampler

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
)

// stub is a source whose Sample is a function.
type stub struct {
	devices []collector.Device
	columns []collector.Column
	sample  func(row []float64, due []bool) error
}

func (s *stub) Devices() []collector.Device            { return s.devices }
func (s *stub) Columns() []collector.Column            { return s.columns }
func (s *stub) Sample(row []float64, due []bool) error { return s.sample(row, due) }
func devices(n int) (ds []collector.Device) {
	for i := range n {
		ds = append(ds, collector.Device{ID: fmt.Sprintf("GPU-%d", i), Level: field.GPU})
	}
	return ds
}

func testWorker(s *stub, fields field.List) (*worker, *metrics) {
	m := newMetrics()
	o := Options{}.withDefaults()
	src, err := bind(s, fields, o)
	if err != nil {
		panic(err) // memory of this process cannot be refused
	}
	w := newWorker("stub", src, fields, o, m)
	w.notify = func(error) {}
	return w, m
}

func TestSchedule(t *testing.T) {
	fast, slow, static := desc(60001, field.EachTick), desc(60002, field.Slow), desc(60003, field.Static)
	l := list(fast, slow, static)
	l.Fields[0].Interval = 100 * time.Millisecond
	columns := []collector.Column{{Field: fast.ID}, {Field: slow.ID}, {Field: static.ID}, {Field: 60009}}
	s := newSchedule(columns, l, Options{}.withDefaults())
	if s.tick != 100*time.Millisecond {
		t.Fatalf("tick is %v, want that of the fastest field", s.tick)
	}
	count := make([]int, len(columns))
	for n := range uint64(6000) { // ten minutes
		for i, due := range s.at(n) {
			if due {
				count[i]++
			}
		}
	}
	for i, want := range []int{6000, 20, 2, 600} {
		if count[i] != want {
			t.Errorf("column %d was due %d times in ten minutes, want %d", i, count[i], want)
		}
	}
	s.at(6000)
	if due := s.at(6299); due[1] || !due[0] {
		t.Errorf("at tick 6299: %v", due)
	}
	if due := s.at(6412); !due[1] { // 6300 was skipped
		t.Error("a column whose tick was skipped is not due on the next")
	}
	if due := s.at(6413); due[1] {
		t.Error("due twice")
	}
	s.retry()
	if due := s.at(6414); !due[2] {
		t.Error("not due after a failure")
	}
}

// Two names of one reading: the shorter interval serves both.
func TestScheduleOfAReadingWithTwoNames(t *testing.T) {
	d := desc(60001, field.Slow)
	f := func(first, second, want time.Duration) {
		t.Helper()
		l := list(d, d)
		l.Fields[0].Interval, l.Fields[1].Interval = first, second
		s := newSchedule([]collector.Column{{Field: d.ID}}, l, Options{}.withDefaults())
		if got := time.Duration(s.groups[0].every) * s.tick; got != want {
			t.Errorf("intervals %v and %v: sampled every %v, want %v", first, second, got, want)
		}
	}
	f(0, 0, 30*time.Second)
	f(5*time.Second, 0, 5*time.Second)
	f(time.Minute, 0, 30*time.Second)
	f(time.Minute, 2*time.Second, 2*time.Second)
}

func TestTickBlamesTheDeviceNamed(t *testing.T) {
	var err error
	src := &stub{devices: devices(3), columns: []collector.Column{{Device: 0, Field: 60001}, {Device: 1, Field: 60001}, {Device: 2, Field: 60001}}}
	src.sample = func(row []float64, due []bool) error {
		for i := range row {
			row[i]++
		}
		return err
	}
	w, _ := testWorker(src, oneField)
	states := func() (s [3]State) {
		for i := range s {
			s[i] = w.device(i, time.Now()).State
		}
		return s
	}
	if got := states(); got != [3]State{Stalled, Stalled, Stalled} {
		t.Errorf("before the first sample: %v", got)
	}
	f := func(e error, want [3]State) {
		t.Helper()
		err = e
		at := time.Now()
		w.tick(0, at)
		if got := states(); got != want {
			t.Errorf("after %v: %v, want %v", e, got, want)
		}
		var row ring.Row
		if !w.view.Ring.Latest(&row) || row.Time != at.UnixNano() {
			t.Fatalf("no row for the tick after %v", e)
		}
		for i, s := range want {
			if fresh := row.Stamps[i] == at.UnixNano(); fresh != (s == Up) {
				t.Errorf("after %v: device %d fresh is %v, state %v", e, i, fresh, s)
			}
		}
	}
	one := func(i int, e error) error { return &collector.DeviceError{Device: i, Err: e} }
	f(nil, [3]State{Up, Up, Up})
	f(one(1, collector.ErrDeviceLost), [3]State{Up, Lost, Up})
	f(errors.Join(one(0, collector.ErrStalled), one(2, collector.ErrDeviceLost)), [3]State{Stalled, Up, Lost})
	f(collector.ErrColumnsChanged, [3]State{Up, Up, Up})
	f(errors.New("engine gone"), [3]State{Stalled, Stalled, Stalled})
	f(one(7, errors.New("index out of range")), [3]State{Stalled, Stalled, Stalled})
	f(fmt.Errorf("poll: %w", one(0, collector.ErrDeviceLost)), [3]State{Lost, Up, Up})
	f(nil, [3]State{Up, Up, Up})
}

func TestTickDoesNotAllocate(t *testing.T) {
	src := &stub{devices: devices(1)}
	var l field.List
	for i := range 100 {
		d := desc(field.ID(60000+i), field.EachTick)
		l.Fields = append(l.Fields, field.Field{Desc: d, Name: d.Name, Scale: 1})
		src.columns = append(src.columns, collector.Column{Field: d.ID})
	}
	src.sample = func(row []float64, due []bool) error {
		for i := range row {
			row[i] = float64(i)
		}
		return nil
	}
	w, _ := testWorker(src, l)
	n := uint64(0)
	now := time.Now()
	if got := testing.AllocsPerRun(1000, func() { w.tick(n, now); n++ }); got != 0 {
		t.Errorf("a tick allocates %v times, want 0", got)
	}
	lost := &collector.DeviceError{Device: 0, Err: collector.ErrDeviceLost}
	src.sample = func([]float64, []bool) error { return lost }
	if got := testing.AllocsPerRun(1000, func() { w.tick(n, now); n++ }); got != 0 {
		t.Errorf("a tick of a lost device allocates %v times, want 0", got)
	}
}
