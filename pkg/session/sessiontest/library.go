// Package sessiontest is a scripted vendor library, for tests of sessions and of supervisors.
package sessiontest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Library is a library that a test changes with Set while it is in use. It reports an error if two collectors
// are open at once, if one is closed during a call, or if one is called after that.
type Library struct {
	tb testing.TB

	mu        sync.Mutex
	IDs       []string               // of the devices, one source each
	OpenErr   func(field.List) error // nil: Open succeeds
	OpenFor   time.Duration          // duration of an Open, unless its context ends
	ScanFor   time.Duration          // duration of a Rescan
	ScanHang  chan struct{}          // a Rescan returns when it is closed
	ScanErr   error
	ScanFound bool // other devices; Rescan also reports them if IDs have changed

	// By device.
	Mute    map[string]time.Duration // time without values after Open
	Blank   map[string]int           // number of blank rows after Open
	Takes   map[string]time.Duration // each call
	Hang    map[string]chan struct{} // calls of Sample return when it is closed
	Answers bool                     // other calls succeed
	Failure map[string]error         // of Sample
	Value   map[string]float64       // value of all cells; nil: the time

	Opens, Closes, Scans int
	Inside               int // calls of Sample and Rescan in progress
	Hanging              int // calls that wait for Hang, or did
	Samples              map[string]int
}

// New returns a library with these devices.
func New(tb testing.TB, ids ...string) *Library {
	tb.Helper()
	return &Library{
		tb: tb, IDs: ids, Mute: map[string]time.Duration{}, Blank: map[string]int{}, Takes: map[string]time.Duration{},
		Hang: map[string]chan struct{}{}, Failure: map[string]error{}, Value: map[string]float64{}, Samples: map[string]int{},
	}
}

// Set changes or reads the library under its lock.
func (l *Library) Set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// Open makes a collector.
func (l *Library) Open() collector.Collector { return &conn{l: l} }

// Held reports whether a collector is open.
func (l *Library) Held() (held bool) {
	l.Set(func() { held = l.Opens != l.Closes })
	return held
}

// Fail makes all calls fail with an error; nil: none.
func (l *Library) Fail(err error) {
	l.Set(func() {
		for _, id := range l.IDs {
			l.Failure[id] = err
		}
	})
}

// wait returns after d, or with ctx's error when ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type conn struct {
	l   *Library
	ids []string
}

func (c *conn) Name() string { return "scripted" }

func (c *conn) Open(ctx context.Context, fields field.List) (out []collector.Source, err error) {
	l := c.l
	var takes time.Duration
	l.Set(func() { takes = l.OpenFor })
	if err := wait(ctx, takes); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Opens != l.Closes {
		l.tb.Error("a collector is opened while another is open")
	}
	if l.OpenErr != nil {
		if err := l.OpenErr(fields); err != nil {
			return nil, err
		}
	}
	l.Opens++
	c.ids = slices.Clone(l.IDs)
	for i, id := range c.ids {
		d := collector.Device{ID: id, Level: field.GPU, GPU: fmt.Sprint(i), PCIBusID: "bus " + id}
		s := &source{l: l, id: id, born: time.Now(), devices: []collector.Device{d}}
		for _, r := range fields.Readings() {
			s.columns = append(s.columns, collector.Column{Field: r.Desc.ID})
		}
		out = append(out, s)
	}
	return out, nil
}

func (c *conn) Rescan(ctx context.Context) (bool, error) {
	l := c.l
	l.mu.Lock()
	l.Scans++
	l.Inside++
	takes, hang := l.ScanFor, l.ScanHang
	l.mu.Unlock()
	defer l.Set(func() { l.Inside-- })
	if hang != nil {
		<-hang
	}
	if err := wait(ctx, takes); err != nil {
		time.Sleep(time.Millisecond) // Close must still wait for it
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ScanFound || !slices.Equal(c.ids, l.IDs), l.ScanErr
}

func (c *conn) Close() error {
	l := c.l
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Closes++
	if l.Inside != 0 {
		l.tb.Errorf("closed with %d calls in progress", l.Inside)
	}
	return nil
}

type source struct {
	l       *Library
	id      string
	born    time.Time
	rows    int
	devices []collector.Device
	columns []collector.Column
}

func (s *source) Devices() []collector.Device { return s.devices }
func (s *source) Columns() []collector.Column { return s.columns }

// Probe implements collector.Prober.
func (s *source) Probe(string) (answers bool) {
	s.l.Set(func() { answers = s.l.Answers })
	return answers
}

func (s *source) Sample(row []float64, due []bool) error {
	l := s.l
	l.mu.Lock()
	l.Inside++
	l.Samples[s.id]++
	if l.Closes >= l.Opens {
		l.tb.Error("sample after close")
	}
	hang, takes, err, mute, blank := l.Hang[s.id], l.Takes[s.id], l.Failure[s.id], l.Mute[s.id], l.Blank[s.id]
	value, scripted := l.Value[s.id]
	if hang != nil {
		l.Hanging++
	}
	l.mu.Unlock()
	defer l.Set(func() { l.Inside-- })
	time.Sleep(takes)
	if hang != nil {
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
		case due[i] && scripted:
			row[i] = value
		case due[i]:
			row[i] = float64(time.Now().UnixNano())
		}
	}
	return nil
}
