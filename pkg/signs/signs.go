// Package signs computes, from every sampled row, what tends to come before a fault: corrected
// memory errors, library calls that take longer than they did, spare rows that run out, errors
// of links, throttling, and a GPU that is out of line with its peers. docs/health.md says how
// each is computed, whose figures the thresholds are, and when a healthy device shows it.
//
// Signs follows the rings as any reader of them does: no sampler waits for it. It belongs to
// one goroutine, Run; only its metrics are read by others. In the steady state it allocates
// nothing. A sign of which the readings are missing has no value.
package signs

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/health"
	"warpgauge/pkg/owner"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

// Names of the signs, which are those of rules of package health.
const (
	CorrectedErrors = "corrected_errors"
	SlowCalls       = "slow_calls"
	SpareRowsLow    = "spare_rows_low"
	NVLinkErrors    = "nvlink_errors"
	Throttled       = "throttled"
	Straggler       = "straggler"
)

// Options of New.
type Options struct {
	Board *view.Board
	// Observe gets each sign that begins or ends. It must not block.
	Observe func(health.Observation)
	Owners  Owners // nil: it is not known who uses a device
	// Calls reports, for each source of all collectors, how many samples it has taken and for
	// how long they were in the library. nil: it is not known.
	Calls      func(report func(collector, source string, count uint64, seconds float64))
	Registerer prometheus.Registerer // nil: none
}

// Owners says who uses a device; owner.Keeper does.
type Owners interface {
	Version() uint64
	Users(*collector.Device) []owner.Owner
}

const (
	// interval is how often rings are read. The fastest, of 10 ms ticks, holds 10 s.
	interval = time.Second
	// fresh is how old the newest sample of a device may be, with which others are compared.
	fresh = time.Minute
	// forget is after how long the state of a device that is gone is dropped.
	forget = 24 * time.Hour
)

// Signs computes the signs of all devices.
type Signs struct {
	o Options

	mu      sync.Mutex // guards all that follows: held for computing only
	now     int64      // of the last Sync, Unix ns
	view    *view.View
	follows []*follow
	row     ring.Row
	devices map[string]*device // by ID, those that are gone included
	present []*device          // those of the View
	peers   peers
	calls   calls
}

// New returns Signs that do not run yet. It panics if o.Registerer has metrics of another one.
func New(o Options) *Signs {
	s := &Signs{o: o, devices: make(map[string]*device), calls: calls{sources: make(map[callKey]*callSource)}}
	o.Board.AddReader()
	if o.Registerer != nil {
		o.Registerer.MustRegister(s)
	}
	return s
}

// Run computes until ctx ends.
func (s *Signs) Run(ctx context.Context) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		s.Sync(time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Sync takes every row that is new on the board and decides which signs hold. It is called by
// one goroutine at a time: Run, or in its place one that has a clock of its own.
func (s *Signs) Sync(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := now.UnixNano()
	s.now = at
	s.read() // of rings that leave, too
	if v := s.o.Board.Load(); v != s.view {
		for _, next := range v.After(s.view) {
			s.bind(next, at)
			s.read()
		}
	}
	s.calls.sync(s, at)
	s.peers.sync(s, at)
	s.sumLinks(at)
	for _, d := range s.present {
		s.judge(d, at)
	}
}

// bind replaces the follows by those of v. A ring that stays is read on from where it was.
func (s *Signs) bind(v *view.View, now int64) {
	old := make(map[*ring.Ring]*follow, len(s.follows))
	for _, f := range s.follows {
		old[f.source.Ring] = f
	}
	s.view, s.follows, s.present = v, s.follows[:0:0], s.present[:0:0]
	claimed := make(map[string]bool) // a device is that of the first source that has it
	for _, src := range v.Sources {
		if src.Ring == nil || src.Ring.Stamps() != len(src.Devices) || src.Ring.Cells() != len(src.Columns) {
			continue
		}
		f := s.newFollow(src, claimed, now)
		if o := old[src.Ring]; o != nil {
			f.rows = o.rows
		}
		s.follows = append(s.follows, f)
	}
	for id, d := range s.devices {
		if !claimed[id] && now-d.bound > int64(forget) {
			delete(s.devices, id)
		}
	}
	for _, d := range s.present {
		d.divided = false
	}
	for _, d := range s.present {
		if d.gpu = s.devices[d.Parent]; d.gpu != nil && !isLink(d) {
			d.gpu.divided = true
		}
	}
	s.peers.grouped = false
}

// read takes the new rows of the rings that are followed.
func (s *Signs) read() {
	for _, f := range s.follows {
		// A writer that is faster than us cannot keep us here.
		for limit := 2 * f.source.Ring.Rows(); limit > 0 && f.rows.Next(&s.row); limit-- {
			f.take(&s.row)
		}
	}
}

// tell reports a sign of a device that began or ended.
func (s *Signs) tell(d *device, sign, text string, now int64, over bool) {
	s.o.Observe(health.Observation{
		Reason: sign, Device: d.ID, PCIBusID: d.PCIBusID, Time: time.Unix(0, now), Source: "early signs", Text: text, Over: over,
	})
}

// repeat is how often a sign that holds is told again, with its value of then.
const repeat = int64(time.Hour)

// alarm is whether a sign holds. It begins when the value has been beyond its threshold for a
// time, and ends when it has been well below it for a time. An end is told after the start,
// too, because the process before may have told a begin.
type alarm struct {
	holds, known bool
	begins       bool  // what since is about
	since        int64 // from when on the value asks for a change; 0: it does not
	told         int64
}

// update takes what the value says now, and reports whether holds is to be told.
func (a *alarm) update(now int64, beyond, calm bool, on, off time.Duration) bool {
	begins, wanted, wait := !a.holds && (beyond || a.known), calm, off
	if begins {
		wanted, wait = beyond, on
	}
	if !wanted {
		a.since = 0
		return a.holds && a.again(now)
	}
	if a.since == 0 || a.begins != begins || now < a.since { // or the clock was set back
		a.since, a.begins = now, begins
	}
	if now-a.since < int64(wait) {
		return a.holds && a.again(now)
	}
	a.since, a.told, a.holds, a.known = 0, now, begins, true
	return true
}

func (a *alarm) again(now int64) bool {
	if now >= a.told && now-a.told < repeat {
		return false
	}
	a.told = now
	return true
}
