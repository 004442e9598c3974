package pci

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"warpgauge/pkg/field"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Bases of an expectation, the first that applies counts a GPU.
const (
	onBus     = "pci"
	lastKnown = "last_known"
	byFlag    = "flag"
)

const (
	scanInterval = 30 * time.Second
	// patience is for how long a GPU must be gone until it is missing: the driver takes some time for each after a
	// boot or a reload, and collectors search for new ones once a minute.
	patience = 2 * time.Minute
	// forget is after what time without an answer a GPU that was missing is so no longer.
	forget = 10 * time.Minute
)

// Serving lists the GPUs that collectors serve at one time.
type Serving struct {
	// Complete are the vendors all of whose GPUs are served, as far as the driver has them: a
	// collector is up, and neither the user's selection nor the container hides any.
	Complete map[*field.Vendor]bool
	GPUs     map[Address]bool // boards that are served, or released by an operator
	Others   int              // GPUs that are served and have no address
	Known    []Address        // GPUs that were served at some time and have not been written off
}

// Gone is a GPU that is missing.
type Gone struct {
	Address Address // zero: not known which
	Slot    string
	Basis   string
	Count   int
	Text    string // why, in words
}

// Options of New. All but Expected and Logger are required.
type Options struct {
	Bus      Bus
	Expected int // GPUs that the node must have; 0: not known
	Serving  func() Serving
	// Changed gets each GPU that is missing from now on, and each that is not any longer, or
	// that was found for the first time. It must not block.
	Changed func(g Gone, over bool)
	Logger  *zap.Logger
}

// Missing compares the GPUs that are expected with those that are served. Run does the work;
// as a prometheus.Collector it can be used by any goroutine.
type Missing struct {
	o          Options
	log        *zap.Logger
	found      map[Address]bool       // that were served at some time of this process
	candidates map[Address]*candidate // by address; the zero address for those that have none
	state      atomic.Pointer[[]Gone] // what the metric shows, a Gone with a Count of 0 for each basis that finds nothing
}

// candidate is a GPU that was not served the last time it was looked for.
type candidate struct {
	Gone
	since, last time.Time
	reported    bool
}

// New returns a Missing that does not run yet.
func New(o Options) *Missing {
	return &Missing{o: o, log: o.Logger.Named("pci"), found: map[Address]bool{}, candidates: map[Address]*candidate{}}
}

// Run compares twice a minute until ctx ends.
func (m *Missing) Run(ctx context.Context) error {
	tick := time.NewTicker(scanInterval)
	defer tick.Stop()
	for {
		m.compare(time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// compare looks once.
func (m *Missing) compare(now time.Time) {
	boards, err := m.o.Bus.Boards() // no bus: only the flag says what to expect
	serving := m.o.Serving()
	gone, unknown := map[Address]Gone{}, map[Address]bool{}
	bus, bases := map[Address]bool{}, []string{}
	remote := m.servedElsewhere(boards, &serving)
	for i := range boards {
		b := &boards[i]
		bus[b.Address.Board()] = true
		switch {
		case !b.expected() || serving.GPUs[b.Address.Board()]:
		case remote || !serving.Complete[b.Vendor] || !m.o.Bus.Module(b.Vendor):
			unknown[b.Address.Board()] = true
		default:
			gone[b.Address.Board()] = Gone{Address: b.Address, Slot: b.Slot, Basis: onBus, Count: 1, Text: b.text()}
		}
	}
	if err == nil && !remote && slices.Contains(slices.Collect(maps.Values(serving.Complete)), true) {
		bases = append(bases, onBus)
	}
	if err == nil && !remote && len(serving.Known) > 0 {
		bases = append(bases, lastKnown)
		for _, a := range serving.Known {
			if at := a.Board(); !bus[at] && !serving.GPUs[at] {
				gone[at] = Gone{Address: a, Basis: lastKnown, Count: 1, Text: "it was served before, and is no longer on the PCI bus"}
			}
		}
	}
	if m.o.Expected > 0 {
		bases = append(bases, byFlag)
		present := len(serving.GPUs) + serving.Others
		if lack := m.o.Expected - present - len(gone); lack > 0 {
			gone[Address{}] = Gone{Basis: byFlag, Count: lack, Text: fmt.Sprintf("--expected-gpus=%d, of which %d are served", m.o.Expected, present)}
		}
	}
	m.update(gone, unknown, now)
	m.reportServed(serving.GPUs)
	m.publish(bases)
}

// servedElsewhere reports whether the served GPUs are in another machine, as with a remote host engine.
func (m *Missing) servedElsewhere(boards []Board, s *Serving) bool {
	return len(s.GPUs) > 0 && !slices.ContainsFunc(boards, func(b Board) bool { return s.GPUs[b.Address.Board()] })
}

// expected reports whether a driver and a collector should serve the board. What is bound to
// another driver, such as vfio-pci, was given away; the machine's display without any is nothing that
// computes.
func (b *Board) expected() bool {
	return !b.Switch && !b.Virtual && !b.Hidden && (b.Driver == b.Vendor.Module || b.Driver == "" && !b.Display)
}

func (b *Board) text() string {
	where := "on the PCI bus"
	if b.Slot != "" {
		where = "in slot " + b.Slot
	}
	if b.Driver == "" {
		return where + ", and no driver is bound to it"
	}
	return where + " with driver " + b.Driver + ", and no collector finds it"
}

// update compares the GPUs missing now with those missing before.
func (m *Missing) update(gone map[Address]Gone, unknown map[Address]bool, now time.Time) {
	for at, g := range gone {
		c := m.candidates[at]
		if c == nil || now.Before(c.since) {
			c = &candidate{since: now}
			m.candidates[at] = c
		}
		c.Gone, c.last = g, now
		if !c.reported && now.Sub(c.since) >= patience {
			c.reported = true
			m.log.Warn("GPU is missing: "+g.Text, zap.String("pci_bus_id", g.Address.String()), zap.String("slot", g.Slot), zap.Int("count", g.Count))
			m.o.Changed(g, false)
		}
	}
	for at, c := range m.candidates {
		if _, still := gone[at]; still || c.reported && unknown[at] && now.Sub(c.last) < forget {
			continue
		}
		delete(m.candidates, at)
		if c.reported {
			m.log.Info("GPU is no longer missing", zap.String("pci_bus_id", c.Address.String()), zap.String("slot", c.Slot))
			m.o.Changed(c.Gone, true)
		}
	}
}

// reportServed reports GPUs that are served for the first time: they may have been missing when the
// process before ended.
func (m *Missing) reportServed(served map[Address]bool) {
	for at := range served {
		if !m.found[at] && len(m.found) < maxBoards {
			m.found[at] = true
			m.o.Changed(Gone{Address: at, Basis: onBus}, true)
		}
	}
}

// publish makes what the metric shows. Of a GPU that is gone for less than patience it is not known
// whether it is missing, and it is not counted.
func (m *Missing) publish(bases []string) {
	var out []Gone
	for _, c := range m.candidates {
		if c.reported {
			out = append(out, c.Gone)
		}
	}
	for _, b := range bases {
		if !slices.ContainsFunc(out, func(g Gone) bool { return g.Basis == b }) {
			out = append(out, Gone{Basis: b})
		}
	}
	slices.SortFunc(out, func(a, b Gone) int { return strings.Compare(a.Basis+a.Address.String(), b.Basis+b.Address.String()) })
	m.state.Store(&out)
}

var descMissing = prometheus.NewDesc("warpgauge_gpus_missing",
	"GPUs that this node should have and no collector serves, by what says so: pci (on the bus), last_known (served before) or flag (--expected-gpus). sum() is how many are missing.",
	[]string{"basis", "pci_bus_id", "slot"}, nil)

// Describe implements prometheus.Collector.
func (m *Missing) Describe(ch chan<- *prometheus.Desc) { ch <- descMissing }

// Collect implements prometheus.Collector.
func (m *Missing) Collect(ch chan<- prometheus.Metric) {
	state := m.state.Load()
	if state == nil {
		return
	}
	for _, g := range *state {
		ch <- prometheus.MustNewConstMetric(descMissing, prometheus.GaugeValue, float64(g.Count), g.Basis, g.Address.String(), g.Slot)
	}
}
