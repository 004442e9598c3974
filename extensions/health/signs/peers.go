package signs

import (
	"fmt"
	"math"
	"slices"
	"time"

	"warpgauge/pkg/field"
)

// Values with a mean.
const (
	meanClock = iota
	meanEngine
	meanBusy // percent
	meanCount
)

const (
	meanOver = int64(5 * time.Minute)  // time constant
	meanWarm = int64(10 * time.Minute) // until a mean is valid
)

// means holds exponentially weighted means since the device got its users. Unknown values are NaN.
type means struct {
	value       [meanCount]float64
	since, last int64 // of samples
}

func (m *means) add(of int, v float64, at, since int64) {
	if at-m.last > max(fresh, 3*since) || at < m.last {
		m.since = at
		for i := range m.value {
			m.value[i] = math.NaN()
		}
	}
	m.last = at
	if math.IsNaN(m.value[of]) {
		m.value[of] = v
	}
	m.value[of] += (v - m.value[of]) * float64(since) / float64(since+meanOver)
}

// warm reports whether the means are valid.
func (m *means) warm() bool { return m.last-m.since >= meanWarm }

// busy returns the share of time in which the device had work, or NaN if it is unknown.
func (m *means) busy() float64 {
	if v := m.value[meanEngine]; !math.IsNaN(v) {
		return v
	}
	return m.value[meanBusy] / 100
}

const (
	comparePeriod = int64(10 * time.Second)

	fewestPeers = 4   // minimum for a meaningful median
	minBusy     = 0.5 // idle GPUs differ in many ways
	alikeBusy   = 0.9 // relative to the median: a less busy GPU may have a lower clock
)

// peers compares GPUs of the same model and the same users. If no users are known, it compares busy GPUs.
type peers struct {
	version uint64 // of the owners' data
	next    int64
	owned   bool                 // users are known
	groups  map[string][]*device // nil: to be made
	alike   []*device            // of the current group
	values  []float64
}

// sync compares from time to time.
func (p *peers) sync(s *Signs) {
	version := uint64(0)
	if s.owners != nil {
		version = s.owners.Version()
	}
	if p.groups == nil || version != p.version {
		p.version, p.next = version, 0
		p.regroup(s)
	}
	if s.now < p.next && p.next-s.now <= comparePeriod {
		return
	}
	p.next = s.now + comparePeriod
	for _, d := range s.present {
		d.values[field.ClockLag] = math.NaN()
		if d.Level == field.GPU && d.Parent == "" && d.means.warm() {
			d.values[field.ClockLag] = 0 // a device without peers does not lag
		}
	}
	for _, members := range p.groups {
		p.compare(s.now, members)
	}
}

// regroup assigns devices to groups. It excludes divided GPUs, because their parts have different users.
func (p *peers) regroup(s *Signs) {
	keys := make([]string, len(s.present))
	p.owned, p.groups = false, make(map[string][]*device)
	for i, d := range s.present {
		if d.Level != field.GPU || d.Parent != "" || d.divided {
			continue
		}
		keys[i] = d.Model
		if s.owners != nil {
			if users := s.owners.Users(&d.Device); len(users) > 0 {
				keys[i], p.owned = fmt.Sprint(d.Model, users), true
			}
		}
	}
	for i, d := range s.present {
		if key := keys[i]; d.group != key {
			d.group, d.means = key, means{}
		}
		if d.group != "" && (!p.owned || d.group != d.Model) {
			p.groups[d.group] = append(p.groups[d.group], d)
		}
	}
}

// compare sets how far the clocks of a group's members are below the median.
func (p *peers) compare(now int64, members []*device) {
	p.alike = p.alike[:0]
	for _, d := range members {
		if m := &d.means; d.fresh(now) && m.warm() && (m.busy() >= minBusy || p.owned && m.busy() >= 0) {
			p.alike = append(p.alike, d)
		}
	}
	if len(p.alike) < fewestPeers {
		return
	}
	var median [meanCount]float64
	for of := range median {
		median[of] = p.median(of)
	}
	busy := (&means{value: median}).busy()
	if !(busy >= minBusy) {
		return
	}
	for _, d := range p.alike {
		switch lag := 1 - d.means.value[meanClock]/median[meanClock]; {
		case math.IsNaN(lag):
		case lag >= field.Straggler.Threshold && !(d.means.busy() >= alikeBusy*busy):
			d.values[field.ClockLag] = math.NaN()
		default:
			d.values[field.ClockLag] = lag
		}
	}
}

// median returns the median of a mean over alike. It is NaN if a device lacks the mean or the median is not positive.
func (p *peers) median(of int) float64 {
	p.values = p.values[:0]
	for _, d := range p.alike {
		p.values = append(p.values, d.means.value[of])
	}
	slices.Sort(p.values) // NaN sorts first
	if n := len(p.values); p.values[0] >= 0 && p.values[n/2] > 0 {
		return (p.values[(n-1)/2] + p.values[n/2]) / 2
	}
	return math.NaN()
}
