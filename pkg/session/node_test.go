package session

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

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a scripted vendor library. A test changes what its devices do while they
// are sampled. It reports each breach of the order of calls.
type node struct {
	tb testing.TB

	mu        sync.Mutex
	devices   []*device
	openErr   error
	closeErr  error
	openFor   time.Duration // an Open takes so long, or until its context ends
	scanFor   time.Duration // so does a Rescan
	scanHang  chan struct{} // it returns when this is closed
	scanErr   error
	scanFound bool // what Rescan returns
	opens     int
	closes    int
	scans     int
	inside    int // calls of Sample and Rescan in progress
	calls     []string
}

// device is a source with one device.
type device struct {
	id       string
	value    float64
	err      error
	hang     chan struct{} // a call returns when it is closed
	takes    time.Duration // each call
	samples  int
	slowDues int // how often the last column was due
}

func newNode(tb testing.TB, n int) *node {
	tb.Helper()
	nd := &node{tb: tb}
	for i := range n {
		nd.devices = append(nd.devices, &device{id: fmt.Sprintf("GPU-%d", i), value: 42})
	}
	return nd
}

func (n *node) set(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

func (n *node) factory() collector.Collector { return &conn{n: n} }

// plainFactory makes collectors that cannot rescan.
func (n *node) plainFactory() collector.Collector {
	return struct{ collector.Collector }{&conn{n: n}}
}

type conn struct{ n *node }

func (c *conn) Name() string { return "scripted" }

func (c *conn) Open(ctx context.Context, fields field.List) ([]collector.Source, error) {
	n := c.n
	n.mu.Lock()
	n.opens++
	n.calls = append(n.calls, "open")
	if n.opens != n.closes+1 {
		n.tb.Errorf("open %d after %d times close", n.opens, n.closes)
	}
	err, takes, devices := n.openErr, n.openFor, slices.Clone(n.devices)
	n.mu.Unlock()
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err != nil {
		return nil, err
	}
	var out []collector.Source
	for _, d := range devices {
		s := &source{n: n, d: d, devices: []collector.Device{{ID: d.id, Level: field.GPU}}}
		for _, r := range fields.Readings() {
			s.columns = append(s.columns, collector.Column{Field: r.Desc.ID})
		}
		out = append(out, s)
	}
	return out, nil
}

func (c *conn) Rescan(ctx context.Context) (bool, error) {
	n := c.n
	n.mu.Lock()
	n.scans++
	n.inside++
	takes, hang := n.scanFor, n.scanHang
	n.mu.Unlock()
	defer n.set(func() { n.inside-- })
	if hang != nil {
		<-hang
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		time.Sleep(time.Millisecond) // Close must wait for it all the same
		return false, ctx.Err()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.scanFound, n.scanErr
}

func (c *conn) Close() error {
	n := c.n
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closes++
	n.calls = append(n.calls, "close")
	if n.inside != 0 {
		n.tb.Errorf("close with %d calls in progress", n.inside)
	}
	return n.closeErr
}

type source struct {
	n       *node
	d       *device
	devices []collector.Device
	columns []collector.Column
}

func (s *source) Devices() []collector.Device { return s.devices }
func (s *source) Columns() []collector.Column { return s.columns }

func (s *source) Sample(row []float64, due []bool) error {
	n, d := s.n, s.d
	n.mu.Lock()
	n.inside++
	d.samples++
	if n.closes >= n.opens {
		n.tb.Error("sample after close")
	}
	if last := len(due) - 1; last >= 0 && due[last] {
		d.slowDues++
	}
	hang, takes, value, err := d.hang, d.takes, d.value, d.err
	n.mu.Unlock()
	defer n.set(func() { n.inside-- })
	time.Sleep(takes)
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

// desc makes a descriptor that the catalogue does not have.
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

// running is a session that runs in a bubble.
type running struct {
	*Session
	cancel context.CancelFunc
	ended  chan error // of Run, once
	at     time.Time  // it returned, after ended
}

func start(t *testing.T, open collector.Factory, fields field.List, o Options) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{Session: New(open, fields, o), cancel: cancel, ended: make(chan error, 1)}
	go func() {
		err := r.Run(ctx)
		r.at = time.Now()
		r.ended <- err
	}()
	t.Cleanup(cancel)
	synctest.Wait()
	return r
}

// stop ends the session and returns how long that took and the error of Run.
func (r *running) stop() (time.Duration, error) {
	begin := time.Now()
	r.cancel()
	err := <-r.ended
	return time.Since(begin), err
}

// hasEnded reports whether Run has returned, with its error.
func (r *running) hasEnded() (error, bool) {
	synctest.Wait()
	select {
	case err := <-r.ended:
		return err, true
	default:
		return nil, false
	}
}

func (r *running) state(t *testing.T, id string) DeviceStatus {
	t.Helper()
	for _, d := range r.Status().Devices {
		if d.Device.ID == id {
			return d
		}
	}
	t.Fatalf("no status of %q", id)
	return DeviceStatus{}
}
