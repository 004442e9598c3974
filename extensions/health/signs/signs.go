// Package signs computes, from every sampled row, what tends to come before a fault: corrected
// memory errors, library calls that take longer than they did, spare rows that run out, errors
// of links, throttling, and a GPU that is out of line with its peers. docs/health.md says how
// each is computed, whose figures the thresholds are, and when a healthy device shows it.
//
// Signs follows a rows.Reader: no sampler waits for it. In the steady state it allocates
// nothing. A sign whose readings are missing has no value.
package signs

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/extensions/health"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/owner"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/rules"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// Options of New.
type Options struct {
	Rows *rows.Reader
	// Observe gets each sign that begins or ends. It must not block.
	Observe func(health.Observation)
	Owners  Owners // nil: it is not known who uses a device
	// Costs returns what the samples of all collectors have cost. nil: it is not known.
	Costs      func() []session.Costs
	Registerer prometheus.Registerer // nil: none
}

// Owners says who uses a device; owner.Keeper does.
type Owners interface {
	Version() uint64
	Users(*collector.Device) []owner.Owner
}

const (
	// interval is how often it is decided which signs hold.
	interval = time.Second
	// forget is after how long the state of a device that is gone is dropped.
	forget = int64(24 * time.Hour)
)

// Signs computes the signs of all devices. Run does the work.
type Signs struct {
	o Options

	mu      sync.Mutex         // guards all that follows: held for computing only
	now     int64              // of the last Sync, Unix ns
	follows []*follow          // by index of the source
	devices map[string]*device // by ID, those that are gone included
	present []*device          // those of the View
	peers   peers
	asked   int64 // when Costs was, Unix ns
}

// New returns Signs that do not run yet. It panics if o.Registerer has metrics of another one.
func New(o Options) *Signs {
	s := &Signs{o: o, devices: make(map[string]*device)}
	o.Rows.Follow(s)
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

// Sync takes every row that is new and decides which signs hold. It is called by one
// goroutine at a time: Run, or in its place one that has a clock of its own.
func (s *Signs) Sync(now time.Time) {
	s.o.Rows.Sync(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = now.UnixNano()
	s.peers.sync(s)
	s.decide()
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

// decide decides which signs of devices hold.
func (s *Signs) decide() {
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
			s.decideDevice(d)
		}
	}
	if s.o.Costs == nil || s.now >= s.asked && s.now-s.asked < callPeriod {
		return
	}
	s.asked = s.now
	for _, c := range s.o.Costs() {
		for source, cost := range c.Sources {
			if d := s.devices[source]; d != nil && d.calls.collector == c.Collector {
				d.calls.addMinute(cost.Samples, cost.Time.Seconds())
				d.calls.compare(s, d)
			}
		}
	}
}

func (s *Signs) decideDevice(d *device) {
	for i := range d.throttled {
		d.throttled[i].advance(s.now)
	}
	if d.corrected.used {
		d.corrected.advance(s.now)
		d.bucket.add(0, s.now)
		s.update(d, alarmCorrected, d.bucket.full, d.bucket.level <= rules.CorrectedErrorsPerDay/2)
		d.bucket.full = false
	}
	if d.none >= 0 {
		s.update(d, alarmSpareRows, d.none >= 1, d.none == 0)
	}
	if d.slowed.used {
		most := rules.MaxThrottled.Seconds()
		d.slowed.advance(s.now)
		s.update(d, alarmThrottled, d.slowed.total >= most, d.slowed.total <= most/3)
	}
	if worst := d.links.worst; worst != nil {
		s.update(d, alarmLinks, worst.links.share >= 1, worst.links.share <= 0.5)
	}
}

// update updates an alarm of a device and tells the change.
func (s *Signs) update(d *device, n int, beyond, calm bool) {
	if a := &d.alarms[n]; a.update(s.now, beyond, calm, alarmTimes[n]) {
		s.tell(d, alarmNames[n], d.describe(n), !a.holds)
	}
}

// tell reports a sign of a device that begins, holds or is over.
func (s *Signs) tell(d *device, sign, text string, over bool) {
	s.o.Observe(health.Observation{
		Reason: sign, Device: d.ID, PCIBusID: d.PCIBusID, Time: time.Unix(0, s.now), Source: "early signs", Text: text, Over: over,
	})
}
