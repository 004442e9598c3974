package session

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/internal/testkit"
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
		ds = append(ds, collector.Device{ID: fmt.Sprintf("GPU-%d", i), Level: field.GPU, GPU: fmt.Sprint(i)})
	}
	return ds
}

// bind binds sources in a session that does not run.
func bind(t *testing.T, fields field.List, o Options, sources ...collector.Source) *binding {
	t.Helper()
	b := testkit.Get(New(newNode(t, 0).Open, fields, o).bind(sources))(t)
	return b
}

// testWorker returns the worker of a source in a session that does not run.
func testWorker(t *testing.T, src collector.Source, fields field.List, sel Selection) *worker {
	t.Helper()
	return bind(t, fields, Options{Select: sel}, src).workers[0]
}

func TestSchedule(t *testing.T) {
	fast, slow, static := desc(60001, field.EachTick), desc(60002, field.Slow), desc(60003, field.Static)
	medium := desc(60004, field.Medium)
	l := list(fast, slow, static, medium)
	l.Fields[0].Interval = 100 * time.Millisecond
	columns := []collector.Column{{Field: fast.ID}, {Field: slow.ID}, {Field: static.ID}, {Field: 60009}, {Field: medium.ID}}
	s := newSchedule(columns, 1, l, Options{}.withDefaults())
	testkit.Equal(t, "tick, that of the fastest field", 100*time.Millisecond, s.tick)
	count := make([]int, len(columns))
	for n := range uint64(6000) { // ten minutes
		for i, due := range s.at(n) {
			if due {
				count[i]++
			}
		}
	}
	testkit.Equal(t, "times that columns were due in ten minutes", []int{6000, 20, 2, 600, 120}, count)
	s.at(6000)
	due := s.at(6299)
	testkit.ErrorIf(t, due[1] || !due[0], "at tick 6299: %v", due)
	testkit.Equal(t, "a column whose tick, 6300, was skipped is due on the next", true, s.at(6412)[1])
	testkit.Equal(t, "it is due twice", false, s.at(6413)[1])
	s.retry()
	testkit.Equal(t, "a column is due after a failure", true, s.at(6414)[2])
}

// Two names of one reading share the shorter interval. A device whose fields are all slower than the deadline is asked
// for one of them on each tick, because it may hang.
func TestTick(t *testing.T) {
	f := func(d *field.Descriptor, first, second, want time.Duration) {
		t.Helper()
		l := list(d, d)
		l.Fields[0].Interval, l.Fields[1].Interval = first, second
		s := newSchedule([]collector.Column{{Field: d.ID}}, 1, l, Options{}.withDefaults())
		if s.tick != want || len(s.groups) != 1 || s.groups[0].every != 1 {
			t.Errorf("intervals %v and %v: tick %v with groups %+v, want %v", first, second, s.tick, s.groups, want)
		}
	}
	slow := desc(60001, field.Slow)
	f(slow, 0, 0, time.Second)
	f(slow, 5*time.Second, 0, 5*time.Second)
	f(slow, time.Minute, 0, time.Second)
	f(slow, time.Minute, 2*time.Second, 2*time.Second)
	f(slow, time.Millisecond, 0, MinInterval)
	f(desc(60001, field.Static), 0, 0, time.Second)
	f(desc(60001, field.EachTick), 0, 0, time.Second)
}

// A call that hangs is a GPU's own, unless it is for several GPUs.
func TestWhoHangs(t *testing.T) {
	d := desc(60001, field.EachTick)
	for n, want := range map[int]Cause{1: CauseHung, 2: CauseBlocked} {
		w := testWorker(t, &stub{devices: devices(n), columns: []collector.Column{{Field: d.ID}}}, list(d), Selection{})
		w.callStart.Store(1)
		st := w.device(0, time.Now().Add(time.Hour))
		testkit.ErrorIf(t, st.State != Stalled || st.Cause != want || !st.Cause.Hangs(), "of %d GPUs: %+v, want %s", n, st, want)
	}
}

// A device without due columns keeps its stamp and its state; a device without columns is as fresh as its source.
func TestOnlyDevicesThatAreDueAreFresh(t *testing.T) {
	fast, slow := desc(60001, field.EachTick), desc(60002, field.Slow)
	var err error
	src := &stub{devices: devices(3), columns: []collector.Column{{Device: 0, Field: fast.ID}, {Device: 1, Field: slow.ID}, {Device: 1, Field: field.XIDEvent}}}
	src.sample = func([]float64, []bool) error { return err }
	fields := list(fast, slow)
	fields.Fields[1].Interval = 5 * time.Second
	w := testWorker(t, src, fields, Selection{})
	begin := time.Now()
	var row ring.Row
	f := func(n uint64, e error, want ...int) { // the tick of each device's stamp
		t.Helper()
		err = e
		w.tick(n, begin.Add(time.Duration(n)*time.Second))
		testkit.Equal(t, "there is a row", true, w.view.Ring.Latest(&row))
		for i, tick := range want {
			testkit.Equal(t, fmt.Sprintf("tick %d: stamp of device %d after the begin", n, i), time.Duration(tick)*time.Second, time.Unix(0, row.Stamps[i]).Sub(begin))
			testkit.Equal(t, fmt.Sprintf("tick %d: last sample of device %d, as its stamp", n, i), row.Stamps[i], w.device(i, time.Now()).LastSample.UnixNano())
		}
	}
	f(0, nil, 0, 0, 0)
	f(1, nil, 1, 0, 1)
	f(4, nil, 4, 0, 4)
	f(5, nil, 5, 5, 5)
	f(6, errors.New("gone"), 5, 5, 5)
	st := w.device(1, time.Now())
	testkit.ErrorIf(t, st.State != Stalled || st.Cause != CauseError, "after a failure of all the device of which nothing was due is %+v", st)
	f(7, nil, 7, 7, 7) // everything is due after all failed
}

// A source without columns is sampled for its state.
func TestSourceWithoutColumns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 1)
		lost := &stub{devices: []collector.Device{{ID: "GPU-9", Level: field.GPU}}}
		lost.sample = func([]float64, []bool) error { return collector.ErrDeviceLost }
		fine := &stub{devices: []collector.Device{{ID: "GPU-8", Level: field.GPU}}, sample: func([]float64, []bool) error { return nil }}
		s := start(t, func() collector.Collector { return &extended{n.Open(), []collector.Source{lost, fine}} }, oneField, Options{})
		time.Sleep(3 * time.Second)
		for id, want := range map[string]State{"GPU-0": Up, "GPU-8": Up, "GPU-9": Lost} {
			testkit.Equal(t, "state of "+id, want, s.state(t, id).State)
		}
	})
}

func TestErrorsOfDevices(t *testing.T) {
	var err error
	src := &stub{devices: devices(3), columns: []collector.Column{{Device: 0, Field: 60001}, {Device: 1, Field: 60001}, {Device: 2, Field: 60001}}}
	src.sample = func(row []float64, _ []bool) error {
		for i := range row {
			row[i]++
		}
		return err
	}
	var noticed []error
	w := testWorker(t, src, oneField, Selection{})
	w.notify = func(err error) { noticed = append(noticed, err) }
	st := w.device(0, time.Now())
	testkit.ErrorIf(t, st.State != Stalled || st.Cause != CauseStarting, "before the first sample: %+v", st)
	n := uint64(0)
	f := func(e error, notices int, want ...State) {
		t.Helper()
		err, noticed = e, nil
		at := time.Now()
		ok := w.tick(n, at)
		n++
		var row ring.Row
		testkit.FatalIf(t, !w.view.Ring.Latest(&row) || row.Time != at.UnixNano(), "no row for the tick after %v", e)
		for i, s := range want {
			testkit.Equal(t, fmt.Sprintf("state of device %d after %v", i, e), s, w.device(i, at).State)
			testkit.Equal(t, fmt.Sprintf("device %d is fresh after %v", i, e), s == Up, row.Stamps[i] == at.UnixNano())
		}
		testkit.ErrorIf(t, ok != slices.Contains(want, Up) || len(noticed) != notices, "after %v: success is %v, notices %v, want %d", e, ok, noticed, notices)
	}
	one := func(i int, e error) error { return &collector.DeviceError{Device: i, Err: e} }
	f(nil, 0, Up, Up, Up)
	f(one(1, collector.ErrDeviceLost), 1, Up, Lost, Up)
	f(errors.Join(one(0, collector.ErrHung), one(2, collector.ErrDeviceLost)), 1, Stalled, Up, Lost)
	f(errors.Join(collector.ErrColumnsChanged, one(1, errors.New("x"))), 1, Up, Stalled, Up)
	f(collector.ErrColumnsChanged, 1, Up, Up, Up)
	f(fmt.Errorf("%w: %w", collector.ErrColumnsChanged, errors.New("code 7")), 1, Up, Up, Up)
	f(fmt.Errorf("%w: %w", collector.ErrColumnsChanged, collector.ErrNotLoaded), 1, Stalled, Stalled, Stalled)
	f(fmt.Errorf("%w: %w", collector.ErrDeviceLost, errors.New("code 15")), 1, Lost, Lost, Lost)
	f(collector.ErrOutdated, 1, Stalled, Stalled, Stalled)
	f(errors.New("engine gone"), 0, Stalled, Stalled, Stalled)
	f(one(7, errors.New("index out of range")), 0, Stalled, Stalled, Stalled)
	f(fmt.Errorf("poll: %w", one(0, collector.ErrDeviceLost)), 1, Lost, Up, Up)
	f(nil, 0, Up, Up, Up)
}

func TestTickDoesNotAllocate(t *testing.T) {
	src := &stub{devices: devices(2)}
	var l field.List
	for i := range 100 {
		d := desc(field.ID(60000+i), field.EachTick)
		l.Fields = append(l.Fields, list(d).Fields...)
		src.columns = append(src.columns, collector.Column{Device: i % 2, Field: d.ID})
	}
	good := func(row []float64, _ []bool) error {
		for i := range row {
			row[i] = float64(i)
		}
		return nil
	}
	lost := &collector.DeviceError{Device: 0, Err: collector.ErrDeviceLost}
	for name, sel := range map[string]Selection{"all": {}, "one of two devices": choose(t, "g:1", "f", "f"), "the lost one": choose(t, "g:0", "f", "f")} {
		w := testWorker(t, src, l, sel)
		n, now := uint64(0), time.Now()
		for what, sample := range map[string]func([]float64, []bool) error{"good": good, "lost": func([]float64, []bool) error { return lost }} {
			src.sample = sample
			testkit.Equal(t, fmt.Sprintf("%s, %s: allocations of a tick", name, what), 0.0, testing.AllocsPerRun(100, func() { w.tick(n, now); n++ }))
		}
	}
}

// The cell of an event is blank before each call; other cells keep their value.
func TestCellsBeforeACall(t *testing.T) {
	xid, ok := field.ByID(field.XIDEvent)
	testkit.FatalIf(t, !ok, "the catalogue has no XID event")
	src := &stub{devices: devices(2), columns: []collector.Column{{Field: 60001}, {Field: xid.ID}, {Device: 1, Field: 60001}, {Device: 1, Field: xid.ID}}}
	var before []float64
	src.sample = func(row []float64, due []bool) error {
		before = slices.Clone(row)
		for i := range row {
			if due[i] {
				row[i] = 5
			}
		}
		return nil
	}
	for name, sel := range map[string]Selection{"all": {}, "one device": choose(t, "g:1", "f", "f")} {
		w := testWorker(t, src, list(desc(60001, field.EachTick), xid), sel)
		w.tick(0, time.Now())
		w.tick(1, time.Now())
		if before[2] != 5 || !math.IsNaN(before[1]) || !math.IsNaN(before[3]) {
			t.Errorf("%s: cells before the second call are %v, want the last value and blank events", name, before)
		}
	}
}

// dating is a source whose library dates its values.
type dating struct {
	*stub
	at []int64 // by device, Unix ns
}

func (d dating) Dated(device int) int64 { return d.at[device] }

// A device's stamp is the time of its values, if the source knows it.
func TestStampsOfValues(t *testing.T) {
	for name, sel := range map[string]Selection{"all": {}, "one device": choose(t, "g:1", "f", "f")} {
		src := &stub{devices: devices(2), columns: []collector.Column{{Field: 60001}, {Device: 1, Field: 60001}}}
		src.sample = func([]float64, []bool) error { return nil }
		now := time.Unix(1000, 0)
		w := testWorker(t, dating{src, []int64{0, now.Add(-3 * time.Second).UnixNano()}}, list(desc(60001, field.EachTick)), sel)
		w.tick(0, now)
		want := []int64{now.UnixNano(), now.Add(-3 * time.Second).UnixNano()}
		if name != "all" {
			want = want[1:]
		}
		testkit.Equal(t, name+": stamps", want, w.stamps)
		testkit.Equal(t, name+": last sample", now.Add(-3*time.Second).UnixNano(), w.lastGood[len(want)-1].Load())
	}
}

// TestALabelThatMovesAsksForAnotherSession: a label keeps the device's value from Open until the next comparison.
func TestALabelThatMovesAsksForAnotherSession(t *testing.T) {
	f := func(label string, reading float64, want bool) {
		t.Helper()
		clock := &field.Descriptor{ID: 60001, Name: "clock", Kind: field.Int64, Unit: "MHz", Max: 1e9}
		l := list(desc(60002, field.EachTick))
		l.Fields = append(l.Fields, field.Field{Desc: clock, Name: "clock_hertz", Type: field.Label, Scale: 1e6})
		src := &stub{devices: devices(1), columns: []collector.Column{{Field: 60002}, {Field: 60001}}}
		src.devices[0].Facts = []collector.Label{{Name: "clock_hertz", Value: label}}
		src.sample = func(row []float64, _ []bool) error { row[1] = reading; return nil }
		w := testWorker(t, src, l, Selection{})
		testkit.Equal(t, "the label's reading is due", true, w.schedule.at(1)[1])
		var asked []error
		w.notify = func(err error) { asked = append(asked, err) }
		begin := w.checked
		w.tick(1, begin.Add(time.Second))
		testkit.Equal(t, fmt.Sprintf("label %s, reading %v: sessions asked for after a second", label, reading), 0, len(asked))
		w.tick(60, begin.Add(time.Minute))
		w.tick(61, begin.Add(time.Minute+time.Second))
		got := len(asked) == 1 && errors.Is(asked[0], collector.ErrColumnsChanged)
		testkit.ErrorIf(t, got != want || len(asked) > 1, "label %s, reading %v: %v, want another session: %v", label, reading, asked, want)
	}
	f("1410000000", 1410, false)
	f("1410000000", 345, true)
	f("345000000", 1410, true)
	f("0", 0, false)
	f("0", 1, true)
	f("1410000000", math.NaN(), false)
	f("none", 1410, false)
}
