// Package signs derives, from every sampled row, readings of what tends to come before a fault:
// corrected memory errors, library calls that take longer than they did, spare rows that run
// out, errors of links, throttling, and a GPU that is out of line with its peers. Rules of
// package health judge them. docs/health.md says how each is computed.
//
// Signs follows a rows.Reader and starts no goroutine. In the steady state it allocates
// nothing. A sign whose readings are missing has no value.
package signs

import (
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/owner"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/rules"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// Options of New.
type Options struct {
	Rows       *rows.Reader
	Owners     Owners                // nil: it is not known who uses a device
	Engine     Engine                // nil: the time of library calls is not known
	Registerer prometheus.Registerer // nil: none
}

// Owners says who uses a device; owner.Keeper does.
type Owners interface {
	Version() uint64
	Users(*collector.Device) []owner.Owner
}

// Engine tells what the sessions have spent in libraries; exporter.Engine does.
type Engine interface {
	Costs() []session.Costs
}

// forget is after how long the state of a device that is gone is dropped.
const forget = int64(24 * time.Hour)

// Signs derives the readings of all devices. It implements health.Derived.
type Signs struct {
	o Options

	mu      sync.Mutex         // guards all that follows: held for computing only
	now     int64              // of the last Update, Unix ns
	follows []*follow          // by index of the source
	devices map[string]*device // by ID, those that are gone included
	present []*device          // those of the View
	peers   peers
	asked   int64 // when the Engine was, Unix ns
}

// New returns Signs. It panics if o.Registerer has metrics of another one.
func New(o Options) *Signs {
	s := &Signs{o: o, devices: make(map[string]*device)}
	o.Rows.Follow(s)
	if o.Registerer != nil {
		o.Registerer.MustRegister(s)
	}
	return s
}

// Update brings the derived readings up to date with the rows that were read.
func (s *Signs) Update(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = now.UnixNano()
	s.peers.sync(s)
	for _, d := range s.present {
		d.links.worst = nil
	}
	for _, d := range s.present {
		if d.links.known {
			d.links.sum(s.now)
			d.worseLink(d)
			if d.gpu != nil {
				d.gpu.worseLink(d)
			}
		}
	}
	for _, d := range s.present {
		if d.fresh(s.now) && !d.isLink() {
			d.derive(s.now)
		}
	}
	if s.o.Engine == nil || s.now >= s.asked && s.now-s.asked < callPeriod {
		return
	}
	s.asked = s.now
	for _, c := range s.o.Engine.Costs() {
		for source, cost := range c.Sources {
			if d := s.devices[source]; d != nil && d.calls.collector == c.Collector {
				d.values[rules.CallSlowdown] = d.calls.addMinute(cost.Samples, cost.Time.Seconds())
			}
		}
	}
}

// Value returns a derived reading of a device; NaN: it is not known.
func (s *Signs) Value(device string, of rules.Derived) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.devices[device]; d != nil && d.fresh(s.now) {
		return d.values[of]
	}
	return math.NaN()
}

// Evidence says in words what a derived reading comes from.
func (s *Signs) Evidence(device string, of rules.Derived) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.devices[device]; d != nil {
		return d.describe(of)
	}
	return ""
}

// Bind replaces the follows by those of another View.
func (s *Signs) Bind(_ *view.View, sources []rows.Source, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.follows, s.present, s.peers.grouped = make([]*follow, len(sources)), s.present[:0:0], false
	claimed := make(map[string]bool)
	for n := range sources {
		src := &sources[n]
		f := &follow{source: src.Source, devices: make([]deviceTap, len(src.Devices))}
		for i := range src.Devices {
			if !src.Supplies[i] {
				continue
			}
			id := src.Devices[i].ID
			claimed[id] = true
			d := s.devices[id]
			if d == nil {
				d = newDevice()
				s.devices[id] = d
			}
			d.Device, d.bound, d.every, d.divided = src.Devices[i], now.UnixNano(), int64(src.IntervalOf(i)), false
			f.devices[i].device = d
			s.present = append(s.present, d)
		}
		f.connect()
		f.bindCalls()
		s.follows[n] = f
	}
	for id, d := range s.devices {
		if !claimed[id] && now.UnixNano()-d.bound > forget {
			delete(s.devices, id)
		}
	}
	for _, d := range s.present {
		if d.gpu = s.devices[d.Parent]; d.gpu != nil && !d.isLink() {
			d.gpu.divided = true
		}
	}
}

// Row takes a row.
func (s *Signs) Row(row *rows.Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.follows[row.Source].addRow(row)
}
