package supervisor

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

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

func TestMain(m *testing.M) {
	beChild()
	goleak.VerifyTestMain(m)
}

// library is a scripted vendor library for sessions in this process. It reports if
// two collectors are open at once, or if one is closed while it is called.
type library struct {
	tb testing.TB

	mu      sync.Mutex
	ids     []string                 // of the devices, one source each
	gpus    map[string]string        // label gpu, by id; the index if it has none
	openErr func(field.List) error   // nil: Open succeeds
	openFor time.Duration            // an Open takes so long
	mute    map[string]time.Duration // a device has no values for so long after Open
	blank   map[string]int           // so many rows of a device are blank after Open
	hang    map[string]chan struct{} // calls return when it is closed
	hanging atomic.Int64             // calls that wait for that, or did
	failure map[string]error         // of Sample
	opens   int
	closes  int
	inside  int
	columns int // of the last Open
}

func newLibrary(tb testing.TB, ids ...string) *library {
	tb.Helper()
	return &library{
		tb: tb, ids: ids, gpus: map[string]string{}, mute: map[string]time.Duration{}, blank: map[string]int{},
		hang: map[string]chan struct{}{}, failure: map[string]error{},
	}
}

func (l *library) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

func (l *library) open() collector.Collector { return &conn{l: l} }

// held reports whether a collector is open.
func (l *library) held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.opens != l.closes
}

type conn struct {
	l   *library
	ids []string
}

func (c *conn) Name() string { return "scripted" }

func (c *conn) Open(ctx context.Context, fields field.List) ([]collector.Source, error) {
	l := c.l
	l.mu.Lock()
	takes := l.openFor
	l.mu.Unlock()
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.opens != l.closes {
		l.tb.Error("a collector is opened while another is open")
	}
	if l.openErr != nil {
		if err := l.openErr(fields); err != nil {
			return nil, err
		}
	}
	l.opens++
	c.ids = slices.Clone(l.ids)
	var out []collector.Source
	for i, id := range c.ids {
		d := collector.Device{ID: id, Level: field.GPU, GPU: fmt.Sprint(i), PCIBusID: "bus " + id}
		if n, ok := l.gpus[id]; ok {
			d.GPU = n
		}
		s := &source{l: l, id: id, born: time.Now(), devices: []collector.Device{d}}
		for _, r := range fields.Readings() {
			s.columns = append(s.columns, collector.Column{Field: r.Desc.ID})
		}
		l.columns = len(s.columns)
		out = append(out, s)
	}
	return out, nil
}

func (c *conn) Rescan(context.Context) (bool, error) {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	return !slices.Equal(c.ids, c.l.ids), nil
}

func (c *conn) Close() error {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.l.closes++
	if c.l.inside != 0 {
		c.l.tb.Errorf("closed with %d calls in progress", c.l.inside)
	}
	return nil
}

type source struct {
	l       *library
	id      string
	born    time.Time
	rows    int
	devices []collector.Device
	columns []collector.Column
}

func (s *source) Devices() []collector.Device { return s.devices }
func (s *source) Columns() []collector.Column { return s.columns }

func (s *source) Sample(row []float64, due []bool) error {
	l := s.l
	l.mu.Lock()
	l.inside++
	hang, err, mute, blank := l.hang[s.id], l.failure[s.id], l.mute[s.id], l.blank[s.id]
	l.mu.Unlock()
	defer l.set(func() { l.inside-- })
	if hang != nil {
		l.hanging.Add(1)
		<-hang
	}
	if time.Since(s.born) < mute {
		return fmt.Errorf("%w: no value yet", collector.ErrStalled)
	}
	if err != nil {
		return err
	}
	s.rows++
	for i := range row {
		switch {
		case s.rows <= blank:
			row[i] = math.NaN()
		case due[i]:
			row[i] = float64(time.Now().UnixNano())
		}
	}
	return nil
}

// list makes a list of so many fields that the catalogue does not have.
func list(n int) (l field.List) {
	for i := range n {
		d := &field.Descriptor{ID: field.ID(60000 + i), Name: fmt.Sprintf("F%d", i), Min: math.Inf(-1), Max: math.Inf(1)}
		l.Fields = append(l.Fields, field.Field{Desc: d, Name: d.Name, Scale: 1})
	}
	return l
}

// bubble is a Supervisor of sessions in this process, under the clock of a bubble.
type bubble struct {
	*Supervisor
	t      *testing.T
	logs   *observer.ObservedLogs
	cancel context.CancelFunc
	ended  chan error // of Run, once
}

func start(t *testing.T, l *library, o Options) *bubble {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	o.Name, o.Logger = "scripted", zap.New(core)
	if l != nil {
		o.Open = l.open
	}
	ctx, cancel := context.WithCancel(t.Context())
	b := &bubble{Supervisor: New(Wanted{List: list(1)}, o), t: t, logs: logs, cancel: cancel, ended: make(chan error, 1)}
	go func() { b.ended <- b.Run(ctx) }()
	t.Cleanup(cancel)
	synctest.Wait()
	return b
}

// pass waits for d of the bubble's time.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// want changes what is wanted and returns how long it took and the error.
func (b *bubble) want(change func(*Wanted)) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	begin := time.Now()
	err := b.Want(ctx, change)
	return time.Since(begin), err
}

// stop ends Run and returns how long that took and its error.
func (b *bubble) stop() (time.Duration, error) {
	begin := time.Now()
	b.cancel()
	err := <-b.ended
	synctest.Wait()
	return time.Since(begin), err
}

// watch checks every millisecond that each of the devices has a row on the board,
// younger than the limit, until the function it returns is called.
func (b *bubble) watch(limit time.Duration, ids ...string) (stop func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		var row ring.Row
		for ctx.Err() == nil {
			found := map[string]bool{}
			for _, s := range b.Board().Load().Sources {
				if !latest(s, &row) {
					continue
				}
				for i, d := range s.Devices {
					age := time.Duration(time.Now().UnixNano() - row.Stamps[i])
					found[d.ID] = row.Stamps[i] != 0 && age <= limit && !slices.ContainsFunc(row.Cells, math.IsNaN)
				}
			}
			for _, id := range ids {
				if !found[id] {
					b.t.Errorf("after %v %s has no row with values younger than %v", time.Since(bubbleStart), id, limit)
					return
				}
			}
			time.Sleep(time.Millisecond)
		}
	})
	return func() { cancel(); wg.Wait() }
}

// bubbleStart is when the clock of a bubble starts.
var bubbleStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (b *bubble) state(id string) session.DeviceStatus {
	b.t.Helper()
	for _, d := range b.Status().Devices {
		if d.Device.ID == id {
			return d
		}
	}
	b.t.Errorf("no status of %q", id)
	return session.DeviceStatus{}
}

// count is how many lines of log have this text.
func (b *bubble) count(text string) int { return b.logs.FilterMessageSnippet(text).Len() }

// shownColumns is how many columns each source on the board has.
func shownColumns(b *view.Board) (out []int) {
	for _, s := range b.Load().Sources {
		out = append(out, len(s.Columns))
	}
	return out
}

func setList(l field.List) func(*Wanted) { return func(w *Wanted) { w.List = l } }
func release(w *Wanted)                  { w.Released = true }
func resume(w *Wanted)                   { w.Released = false }
func standby(w *Wanted)                  { w.Standby = true }
func wakeUp(w *Wanted)                   { w.Standby = false }

var errRefused = errors.New("engine refused")
