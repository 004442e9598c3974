package sampler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

// node is a scripted vendor library: a set of devices whose behaviour the test
// changes while they are sampled.
type node struct {
	mu      sync.Mutex
	devices []*device
	openErr error
	opens   int
	live    int // opened and not closed
	hold    chan struct{}
}

type device struct {
	id     string
	calls  atomic.Int64
	inside atomic.Int64 // concurrent calls
	most   atomic.Int64 // the most ever
	mu     sync.Mutex
	err    error
	value  float64
	hang   chan struct{} // blocks Sample until closed
	delay  time.Duration // of each call
	mute   time.Duration // after an Open there are no values for so long
	clock  bool          // the value is the time, in nanoseconds of the bubble
}

func (d *device) set(f func(*device)) { d.mu.Lock(); f(d); d.mu.Unlock() }

func newNode(n int) *node {
	nd := &node{}
	for i := range n {
		nd.devices = append(nd.devices, &device{id: fmt.Sprintf("GPU-%d", i), value: 42})
	}
	return nd
}

func (n *node) factory() collector.Collector { return &conn{node: n} }

type conn struct {
	node   *node
	opened []string
	open   bool
}

func (c *conn) Name() string { return "scripted" }

func (c *conn) Open(ctx context.Context, fields field.List) ([]collector.Source, error) {
	n := c.node
	n.mu.Lock()
	n.opens++
	hold, err := n.hold, n.openErr
	devices := slices.Clone(n.devices)
	n.mu.Unlock()
	if hold != nil {
		<-hold
	}
	if err != nil {
		return nil, err
	}
	var out []collector.Source
	for _, d := range devices {
		s := &source{d: d, opened: time.Now(), devices: []collector.Device{{ID: d.id, Level: field.GPU}}}
		for _, r := range fields.Readings() {
			s.columns = append(s.columns, collector.Column{Field: r.Desc.ID})
		}
		out = append(out, s)
		c.opened = append(c.opened, d.id)
	}
	if len(out) == 0 {
		return nil, collector.ErrNoDevices
	}
	n.mu.Lock()
	n.live++
	n.mu.Unlock()
	c.open = true
	return out, nil
}

func (c *conn) Rescan(context.Context) (bool, error) {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	var ids []string
	for _, d := range c.node.devices {
		ids = append(ids, d.id)
	}
	return !slices.Equal(ids, c.opened), nil
}

func (c *conn) Close() error {
	if c.open {
		c.open = false
		c.node.mu.Lock()
		c.node.live--
		c.node.mu.Unlock()
	}
	return nil
}

type source struct {
	d       *device
	opened  time.Time
	devices []collector.Device
	columns []collector.Column
}

func (s *source) Devices() []collector.Device { return s.devices }
func (s *source) Columns() []collector.Column { return s.columns }

func (s *source) Sample(row []float64, due []bool) error {
	d := s.d
	d.most.Store(max(d.most.Load(), d.inside.Add(1)))
	defer d.inside.Add(-1)
	d.calls.Add(1)
	d.mu.Lock()
	err, value, hang, delay, clock := d.err, d.value, d.hang, d.delay, d.clock
	if time.Since(s.opened) < d.mute {
		err = fmt.Errorf("%w: no value yet", collector.ErrStalled)
	}
	d.mu.Unlock()
	time.Sleep(delay)
	if clock {
		value = float64(time.Since(bubbleStart))
	}
	if hang != nil {
		<-hang
	}
	if err != nil {
		return err
	}
	for i := range row {
		if due[i] {
			row[i] = value
		}
	}
	return nil
}

// bubbleStart is when the clock of a synctest bubble starts.
var bubbleStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// desc makes a descriptor that the catalogue need not know.
func desc(id field.ID, cost field.Cost) *field.Descriptor {
	return &field.Descriptor{ID: id, Name: fmt.Sprintf("F%d", id), Min: math.Inf(-1), Max: math.Inf(1), Cost: cost}
}

func list(descs ...*field.Descriptor) field.List {
	var l field.List
	for _, d := range descs {
		l.Fields = append(l.Fields, field.Field{Desc: d, Name: d.Name, Scale: 1})
	}
	return l
}

var oneField = list(desc(60001, field.EachTick))

// start runs a sampler in the bubble and stops it at the end of the test.
func start(t *testing.T, n *node, fields field.List, o Options) *Sampler {
	t.Helper()
	s := New([]collector.Factory{n.factory}, fields, o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
		synctest.Wait()
		if n.live != 0 {
			t.Errorf("%d collectors left open", n.live)
		}
		for _, d := range n.devices {
			if d.most.Load() > 2 {
				t.Errorf("device %s: %d concurrent calls", d.id, d.most.Load())
			}
		}
	})
	return s
}

func sourceOf(t *testing.T, s *Sampler, id string) *view.Source {
	t.Helper()
	for _, src := range s.Board().Load().Sources {
		if src.Devices[0].ID == id {
			return src
		}
	}
	t.Fatalf("no source of %q on the board", id)
	return nil
}

func stateOf(t *testing.T, s *Sampler, id string) DeviceStatus {
	t.Helper()
	for _, c := range s.Status() {
		for _, d := range c.Devices {
			if d.Device.ID == id {
				return d
			}
		}
	}
	t.Fatalf("no status of %q", id)
	return DeviceStatus{}
}

func TestSamplesOnTheGrid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(3)
		s := start(t, n, oneField, Options{})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		for _, d := range n.devices {
			src := sourceOf(t, s, d.id)
			if got := src.Ring.Head(); got != 11 && got != 10 {
				t.Errorf("device %s: %d rows in 10 s of 1 s ticks, want 10 or 11", d.id, got)
			}
			var row ring.Row
			if !src.Ring.Latest(&row) || row.Cells[0] != 42 {
				t.Fatalf("latest row of %s: %+v, want 42", d.id, row)
			}
			if age := time.Now().UnixNano() - row.Stamps[0]; age < 0 || age > int64(time.Second) {
				t.Errorf("stamp of %s is %v old, want under a tick", d.id, time.Duration(age))
			}
			if st := stateOf(t, s, d.id); st.State != Up || st.Cause != CauseNone {
				t.Errorf("state of %s: %+v, want up", d.id, st)
			}
		}
	})
}

func TestHungCallStallsItsDeviceOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(2)
		s := start(t, n, oneField, Options{Deadline: 3 * time.Second})
		time.Sleep(5 * time.Second)
		release := make(chan struct{})
		n.devices[0].set(func(d *device) { d.hang = release })
		time.Sleep(60 * time.Second)
		synctest.Wait()
		if st := stateOf(t, s, "GPU-0"); st.State != Stalled || st.Cause != CauseHung {
			t.Errorf("hung device: %+v, want stalled by a hung call", st)
		}
		if got := n.devices[0].inside.Load(); got != 1 {
			t.Errorf("%d calls inside the hung device, want 1", got)
		}
		if st := stateOf(t, s, "GPU-1"); st.State != Up || time.Since(st.LastSample) > time.Second {
			t.Errorf("healthy device: %+v, want up and fresh", st)
		}
		n.devices[0].set(func(d *device) { d.hang = nil })
		close(release)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if st := stateOf(t, s, "GPU-0"); st.State != Up {
			t.Errorf("after the call returned: %+v, want up", st)
		}
	})
}

func TestFailuresBackOffAndRecover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(1)
		s := start(t, n, oneField, Options{RetryMax: 8 * time.Second})
		time.Sleep(1500 * time.Millisecond)
		n.devices[0].set(func(d *device) { d.err = fmt.Errorf("read: %w", collector.ErrDeviceLost) })
		before := n.devices[0].calls.Load()
		time.Sleep(time.Minute)
		synctest.Wait()
		if st := stateOf(t, s, "GPU-0"); st.State != Lost || st.Cause != CauseLost {
			t.Errorf("lost device: %+v", st)
		}
		if calls := n.devices[0].calls.Load() - before; calls < 6 || calls > 20 {
			t.Errorf("%d calls into a lost device in a minute, want about 12 (backing off to 8 s)", calls)
		}
		if src := sourceOf(t, s, "GPU-0"); src.Ring.Head() == 0 {
			t.Error("no rows")
		}
		n.devices[0].set(func(d *device) { d.err = nil })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if st := stateOf(t, s, "GPU-0"); st.State != Up || st.Reason != "" {
			t.Errorf("after recovery: %+v", st)
		}
	})
}

func TestOpenIsRetriedWithBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(1)
		n.openErr = fmt.Errorf("look for libx.so: %w", collector.ErrNotLoaded)
		s := start(t, n, oneField, Options{})
		time.Sleep(time.Minute)
		synctest.Wait()
		st := s.Status()[0]
		if st.Up || st.Cause != CauseNotLoaded || st.Reason == "" {
			t.Errorf("status while the library is absent: %+v", st)
		}
		// at 0, 1, 3, 7, 15, 31 s
		if n.opens != 6 {
			t.Errorf("%d opens in a minute, want 6", n.opens)
		}
		n.mu.Lock()
		n.openErr = nil
		n.mu.Unlock()
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if st := s.Status()[0]; !st.Up || st.Cause != CauseNone {
			t.Errorf("status after the library came: %+v", st)
		}
	})
}

func TestReloadLeavesNoGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(4)
		s := start(t, n, oneField, Options{})
		time.Sleep(3 * time.Second)
		synctest.Wait()
		stop := make(chan struct{})
		var watcher sync.WaitGroup
		watcher.Go(func() {
			var row ring.Row
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
				v := s.Board().Load()
				if len(v.Sources) != 4 {
					t.Errorf("%d sources on the board during reload, want 4", len(v.Sources))
					return
				}
				for _, src := range v.Sources {
					if !src.Ring.Latest(&row) {
						t.Errorf("%s has no row during reload", src.Devices[0].ID)
						return
					}
				}
			}
		})
		two := list(desc(60001, field.EachTick), desc(60002, field.EachTick))
		if err := s.Reload(t.Context(), two); err != nil {
			t.Errorf("reload: %v", err)
		}
		close(stop)
		watcher.Wait()
		for _, src := range s.Board().Load().Sources {
			if len(src.Columns) != 2 {
				t.Errorf("%s has %d columns after reload, want 2", src.Devices[0].ID, len(src.Columns))
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.live != 1 {
			t.Errorf("%d collectors open after reload, want 1", n.live)
		}
	})
}

// TestReloadWaitsForValues: a library that has been asked for a device anew may have
// nothing of it at first. What was read before is served until then, but no longer
// than the deadline, and a device that had no values before is not waited for.
func TestReloadWaitsForValues(t *testing.T) {
	const tick, deadline = time.Second, 4 * time.Second
	f := func(mute, least, most time.Duration) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			n := newNode(3)
			n.devices[2].err = collector.ErrStalled
			s := start(t, n, oneField, Options{Interval: tick, Deadline: deadline})
			time.Sleep(3 * time.Second)
			n.devices[1].set(func(d *device) { d.mute = mute })
			old, begun := s.Board().Load(), time.Now()
			if err := s.Reload(t.Context(), list(desc(60001, field.EachTick), desc(60002, field.EachTick))); err != nil {
				t.Error(err)
			}
			if got := time.Since(begun); got < least || got > most {
				t.Errorf("silent for %v: the old sources were on the board for %v, want %v to %v", mute, got, least, most)
			}
			var row ring.Row
			for i, src := range s.Board().Load().Sources[:2] {
				if src == old.Sources[i] || !src.Ring.Latest(&row) || (row.Stamps[0] != 0) != (i == 0 || mute < deadline) {
					t.Errorf("silent for %v: %s has stamps %v", mute, src.Devices[0].ID, row.Stamps)
				}
			}
		})
	}
	f(0, 0, 0)
	f(2*time.Second, 2*time.Second, 2*time.Second+tick)
	f(time.Minute, deadline, deadline)
}

// TestReloadNeverGoesBack: a counter that decreases is a reset to Prometheus. One
// source is slow, so that the old binding samples the other while the new waits.
func TestReloadNeverGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(2)
		n.devices[0].clock, n.devices[1].clock = true, true
		n.devices[1].delay = 700 * time.Millisecond
		s := start(t, n, oneField, Options{})
		time.Sleep(3 * time.Second)
		ctx, stop := context.WithCancel(t.Context())
		var watcher sync.WaitGroup
		watcher.Go(func() {
			var row ring.Row
			last := make(map[string]float64)
			for ctx.Err() == nil {
				for _, src := range s.Board().Load().Sources {
					id := src.Devices[0].ID
					if !src.Ring.Latest(&row) {
						t.Errorf("%s has no row", id)
						return
					}
					if row.Cells[0] < last[id] {
						t.Errorf("%s went back by %v", id, time.Duration(last[id]-row.Cells[0]))
						return
					}
					last[id] = row.Cells[0]
				}
				time.Sleep(time.Millisecond)
			}
		})
		for i := range 20 {
			time.Sleep(time.Duration(i*137) * time.Millisecond)
			if err := s.Reload(t.Context(), oneField); err != nil {
				t.Errorf("reload: %v", err)
			}
		}
		stop()
		watcher.Wait()
	})
}

func TestReloadDuringHangMakesNoSecondCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(2)
		s := start(t, n, oneField, Options{Deadline: 2 * time.Second})
		time.Sleep(1500 * time.Millisecond)
		release := make(chan struct{})
		n.devices[0].set(func(d *device) { d.hang = release })
		time.Sleep(10 * time.Second)
		for range 3 {
			if err := s.Reload(t.Context(), oneField); err != nil {
				t.Fatalf("reload: %v", err)
			}
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := n.devices[0].most.Load(); got != 1 {
			t.Errorf("%d calls at once inside the hung device, want 1", got)
		}
		if st := stateOf(t, s, "GPU-0"); st.State != Stalled || st.Cause != CauseWaiting {
			t.Errorf("hung device after reload: %+v, want stalled, waiting", st)
		}
		if st := stateOf(t, s, "GPU-1"); st.State != Up {
			t.Errorf("healthy device after reload: %+v", st)
		}
		n.devices[0].set(func(d *device) { d.hang = nil })
		close(release)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if st := stateOf(t, s, "GPU-0"); st.State != Up {
			t.Errorf("after release: %+v, want up", st)
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.live != 1 {
			t.Errorf("%d collectors open, want 1", n.live)
		}
	})
}

func TestReloadThatCannotOpenKeepsTheOldList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(1)
		s := start(t, n, oneField, Options{})
		time.Sleep(1500 * time.Millisecond)
		n.mu.Lock()
		n.openErr = errors.New("engine refused")
		n.mu.Unlock()
		two := list(desc(60001, field.EachTick), desc(60002, field.EachTick))
		if err := s.Reload(t.Context(), two); err == nil {
			t.Error("reload succeeded, want the error of Open")
		}
		if src := sourceOf(t, s, "GPU-0"); len(src.Columns) != 1 {
			t.Errorf("%d columns, want the old list's 1", len(src.Columns))
		}
		n.mu.Lock()
		n.openErr = nil
		n.mu.Unlock()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if src := sourceOf(t, s, "GPU-0"); len(src.Columns) != 2 {
			t.Errorf("%d columns after the retry, want 2", len(src.Columns))
		}
	})
}

func TestColumnsChangedReopens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(1)
		s := start(t, n, oneField, Options{})
		time.Sleep(1500 * time.Millisecond)
		n.mu.Lock()
		n.devices = append(n.devices, &device{id: "GPU-9"})
		n.mu.Unlock()
		n.devices[0].set(func(d *device) { d.err = collector.ErrColumnsChanged })
		time.Sleep(2 * time.Second)
		n.devices[0].set(func(d *device) { d.err = nil })
		time.Sleep(5 * time.Second)
		synctest.Wait()
		sourceOf(t, s, "GPU-9")
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.opens > 6 {
			t.Errorf("%d opens, want at most one a second while columns change", n.opens)
		}
	})
}

func TestBoardThatVanishesIsToldAsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(2)
		s := start(t, n, oneField, Options{RescanInterval: 10 * time.Second, LostMemory: time.Hour})
		time.Sleep(1500 * time.Millisecond)
		n.mu.Lock()
		gone := n.devices[1]
		n.devices = n.devices[:1]
		n.mu.Unlock()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if st := stateOf(t, s, "GPU-1"); st.State != Lost || st.Cause != CauseVanished {
			t.Errorf("vanished board: %+v, want lost", st)
		}
		n.mu.Lock()
		n.devices = append(n.devices, gone)
		n.mu.Unlock()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if st := stateOf(t, s, "GPU-1"); st.State != Up {
			t.Errorf("board that came back: %+v, want up", st)
		}
		n.mu.Lock()
		n.devices = n.devices[:1]
		n.mu.Unlock()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if got := len(s.Status()[0].Devices); got != 1 {
			t.Errorf("%d devices two hours later, want the lost one forgotten", got)
		}
	})
}

func TestStopAbandonsAHungCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(1)
		release := make(chan struct{})
		n.devices[0].hang = release
		s := New([]collector.Factory{n.factory}, oneField, Options{StopTimeout: 2 * time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		time.Sleep(10 * time.Second)
		cancel()
		begin := time.Now()
		err := <-done
		if err == nil || time.Since(begin) > 3*time.Second {
			t.Errorf("Run returned %v after %v, want an error that names the call after 2 s", err, time.Since(begin))
		}
		if n.live != 1 {
			t.Error("collector was closed while a call was inside it")
		}
		close(release)
	})
}
