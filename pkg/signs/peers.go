package signs

import (
	"fmt"
	"math"
	"slices"
	"time"

	"warpgauge/pkg/field"
)

// What means are kept of. The activity that is compared is the first of the last four that all
// peers have, from the most telling on.
const (
	meanClock = iota
	meanPower
	meanTemperature
	meanTensor
	meanSM
	meanEngine
	meanBusy // percent
	meanCount
)

const (
	meanOver = int64(5 * time.Minute)  // time constant
	meanWarm = int64(10 * time.Minute) // until a mean says something
)

// means are exponentially weighted, since a device has been in the hands of the same users.
type means struct {
	value [meanCount]float64
	known [meanCount]bool
	since int64 // of the first sample
	last  int64
}

func (m *means) take(of int, v float64, at, since int64) {
	if at-m.last > int64(fresh) || at < m.last {
		*m = means{since: at}
	}
	m.last = at
	if !m.known[of] {
		m.value[of], m.known[of] = v, true
		return
	}
	m.value[of] += (v - m.value[of]) * float64(since) / float64(since+meanOver)
}

// busy is the share of time in which the device had work; NaN: not known.
func (m *means) busy() float64 {
	switch {
	case m.known[meanEngine]:
		return m.value[meanEngine]
	case m.known[meanBusy]:
		return m.value[meanBusy] / 100
	}
	return math.NaN()
}

// What deviates: ratios of a GPU's mean and its peers' median, less 1; of the temperature, the
// difference in kelvin.
const (
	deviationClock = iota
	deviationPower
	deviationActivity
	deviationTemperature
	deviations
)

var noDeviation = [deviations]float64{math.NaN(), math.NaN(), math.NaN(), math.NaN()}

var deviationNames = [deviationTemperature]string{"clock", "power", "activity"}

const (
	fewestPeers = 4   // of whom a median says something
	leastBusy   = 0.5 // of peers: GPUs without work differ in many ways
	// GPUs of one model and cluster differ by up to 22 % under the same load (Sinha et al.,
	// SC22). More is out of line.
	mostBehind = 0.25
	alikeBusy  = 0.9 // of the median: one that has less to do may have a lower clock
	behindFor  = 15 * time.Minute

	comparePeriod = int64(10 * time.Second)
)

// peers compares GPUs of a model that have the same users, or that are busy if it is not known
// of any device who uses it.
type peers struct {
	grouped bool
	version uint64 // of the owners
	next    int64
	groups  []group
	alike   []*device // scratch
	values  []float64 // scratch
}

type group struct {
	owned   bool
	members []*device
}

// sync compares, now and then.
func (p *peers) sync(s *Signs, now int64) {
	version := uint64(0)
	if s.o.Owners != nil {
		version = s.o.Owners.Version()
	}
	if !p.grouped || version != p.version {
		p.grouped, p.version, p.next = true, version, 0
		p.regroup(s)
	}
	if now < p.next && p.next-now <= comparePeriod {
		return
	}
	p.next = now + comparePeriod
	for _, d := range s.present {
		d.deviation = noDeviation
	}
	for i := range p.groups {
		p.compare(s, &p.groups[i], now)
	}
}

// regroup finds who is compared with whom. A GPU that is divided is not: its parts have
// different users.
func (p *peers) regroup(s *Signs) {
	keys, anyUser := make([]string, len(s.present)), false
	for i, d := range s.present {
		if d.Level != field.GPU || d.Parent != "" || d.divided || s.o.Owners == nil {
			continue
		}
		if users := s.o.Owners.Users(&d.Device); len(users) > 0 {
			keys[i], anyUser = fmt.Sprint(d.Model, users), true
		}
	}
	p.groups = p.groups[:0:0]
	at := make(map[string]int)
	for i, d := range s.present {
		key := keys[i]
		if !anyUser && d.Level == field.GPU && d.Parent == "" && !d.divided {
			key = d.Model + " without users"
		}
		if d.group != key {
			d.group, d.means = key, means{}
		}
		if key == "" {
			continue
		}
		n, ok := at[key]
		if !ok {
			n, at[key] = len(p.groups), len(p.groups)
			p.groups = append(p.groups, group{owned: anyUser})
		}
		p.groups[n].members = append(p.groups[n].members, d)
	}
}

// compare sets the deviations of a group's members from their median.
func (p *peers) compare(s *Signs, g *group, now int64) {
	p.alike = p.alike[:0]
	for _, d := range g.members {
		m := &d.means
		if d.fresh(now) && m.since > 0 && m.last-m.since >= meanWarm && (g.owned && m.busy() >= 0 || m.busy() >= leastBusy) {
			p.alike = append(p.alike, d)
		}
	}
	if len(p.alike) < fewestPeers {
		return
	}
	busy := p.median(func(m *means) float64 { return m.busy() })
	if !(busy >= leastBusy) {
		return
	}
	p.deviate(deviationClock, meanClock)
	p.deviate(deviationPower, meanPower)
	p.deviate(deviationTemperature, meanTemperature)
	for of := meanTensor; of <= meanBusy; of++ {
		if p.deviate(deviationActivity, of) {
			break
		}
	}
	for _, d := range p.alike {
		if clock := d.deviation[deviationClock]; !math.IsNaN(clock) {
			s.update(d, alarmStraggler, now, clock <= -mostBehind && d.means.busy() >= alikeBusy*busy, clock > -mostBehind/2, behindFor, behindFor)
		}
	}
}

// median returns the median of those that are alike; NaN if one of them has no value.
func (p *peers) median(of func(*means) float64) float64 {
	p.values = p.values[:0]
	for _, d := range p.alike {
		p.values = append(p.values, of(&d.means))
	}
	slices.Sort(p.values) // NaN first
	n := len(p.values)
	if math.IsNaN(p.values[0]) {
		return math.NaN()
	}
	return (p.values[(n-1)/2] + p.values[n/2]) / 2
}

// deviate sets one deviation of those that are alike, if all of them have the mean.
func (p *peers) deviate(deviation, of int) bool {
	median := p.median(func(m *means) float64 {
		if !m.known[of] {
			return math.NaN()
		}
		return m.value[of]
	})
	if !(median > 0) {
		return false
	}
	for _, d := range p.alike {
		if v := d.means.value[of]; deviation == deviationTemperature {
			d.deviation[deviation] = v - median
		} else {
			d.deviation[deviation] = v/median - 1
		}
	}
	return true
}
