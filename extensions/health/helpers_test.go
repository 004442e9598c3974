package health

import (
	"math"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

var must = testkit.Must

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a scripted node: GPUs with one column per reading of the test, and a clock.
type node struct {
	testing.TB
	*Watch
	now    time.Time
	view   view.View
	board  view.Board
	status []session.CollectorStatus
	rows   [][]float64      // by GPU
	row    []float64        // of all GPUs
	stamps []int64          // by GPU
	heard  []events.Verdict // verdicts published as events
	events *events.Subscription
}

var start = time.Date(2026, 11, 22, 17, 0, 0, 0, time.UTC)

func newNode(tb testing.TB, gpus int, o Options, ids ...field.ID) *node {
	tb.Helper()
	n := &node{TB: tb, now: start, status: []session.CollectorStatus{{Name: "test", Up: true}}, stamps: make([]int64, gpus)}
	s := &view.Source{Collector: "test", Interval: time.Second}
	for i := range gpus {
		d := collector.Device{ID: "GPU-" + string(rune('a'+i)), Level: field.GPU, GPU: string(rune('0' + i)), PCIBusID: "00000000:0" + string(rune('1'+i)) + ":00.0"}
		s.Devices = append(s.Devices, d)
		for _, id := range ids {
			s.Columns = append(s.Columns, collector.Column{Device: i, Field: id})
		}
		n.rows = append(n.rows, make([]float64, len(ids)))
		n.status[0].Devices = append(n.status[0].Devices, session.DeviceStatus{Device: d})
	}
	n.view.Sources = []*view.Source{s}
	n.restart(o)
	return n
}

// restart replaces the Watch with one that reads the file, and all rings.
func (n *node) restart(o Options) {
	n.Helper()
	if o.Rules == nil {
		o.Rules = Table()
	}
	for _, s := range n.view.Sources {
		s.Ring = ring.Make(16, len(s.Devices), len(s.Columns))
	}
	n.board.Store(&n.view)
	o.Rows, o.Status = rows.New(&n.board, nil), func() []session.CollectorStatus { return n.status }
	o.Events = new(events.Bus)
	n.events = o.Events.Subscribe(4096, events.Health)
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	n.Watch = New(o)
}

// tick samples all devices that are up, and judges them.
func (n *node) tick(d time.Duration) {
	n.now = n.now.Add(d)
	for i := range n.status[0].Devices {
		st := &n.status[0].Devices[i]
		if st.State == session.Up && i < len(n.rows) {
			st.LastSample, n.stamps[i] = n.now, n.now.UnixNano()
		}
	}
	n.row = n.row[:0]
	for _, row := range n.rows {
		n.row = append(n.row, row...)
	}
	for _, s := range n.view.Sources {
		s.Ring.Append(n.now.UnixNano(), n.stamps, n.row)
	}
	n.Sync(n.now)
	for len(n.events.C) > 0 {
		n.heard = append(n.heard, n.of((<-n.events.C).Device.ID))
	}
}

func (n *node) ticks(count int, d time.Duration) {
	for range count {
		n.tick(d)
	}
}

// after checks a verdict after so many ticks.
func (n *node) after(ticks int, d time.Duration, id string, s events.State, reason string) {
	n.Helper()
	n.ticks(ticks, d)
	n.want(id, s, reason)
}

// step makes ticks with a value of GPU-a, and checks its verdict.
func (n *node) step(v float64, ticks int, d time.Duration, s events.State, reason string) {
	n.Helper()
	n.rows[0][0] = v
	n.after(ticks, d, "GPU-a", s, reason)
}

// of returns the verdict on a device.
func (n *node) of(id string) events.Verdict {
	for _, v := range n.Board().Load().Verdicts {
		if v.Device.ID == id {
			return v
		}
	}
	return events.Verdict{Text: "not there"}
}

func (n *node) want(id string, s events.State, reason string) {
	n.Helper()
	if v := n.of(id); v.State != s || v.Reason != reason {
		n.Errorf("%s: the verdict on %s is %v %q (%s), want %v %q", n.now.Sub(start), id, v.State, v.Reason, v.Text, s, reason)
	}
}

var blank = math.NaN()
