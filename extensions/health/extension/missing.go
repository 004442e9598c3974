package extension

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/extensions/health"
	"warpgauge/extensions/health/pci"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// Reasons to expect a GPU. The first that applies counts it.
const (
	onBus     = "pci"
	lastKnown = "last_known"
	byFlag    = "flag"
)

const scanInterval = 30 * time.Second

// bus lists the boards of this machine. pci.Bus implements it.
type bus interface {
	Boards() ([]pci.Board, error)
	Module(*field.Vendor) bool
}

// missing compares the GPUs on the PCI bus with the GPUs that collectors serve. It reports each difference for the rule
// "missing" and exports warpgauge_gpus_missing. A check that finds nothing missing exports 0. A check that cannot run
// exports no series.
//
// run reads small sysfs files that the kernel answers from memory, so it neither wakes a GPU nor waits for one.
type missing struct {
	engine   engine
	bus      bus
	expected int // GPUs that the node must have; 0: unknown
	hidden   map[*field.Vendor]bool
	verdicts *events.Board
	observe  func(health.Observation)

	lacking time.Time // since when fewer than expected are served, or zero
	last    atomic.Pointer[scan]
}

// scan is the result of one comparison.
type scan struct {
	bases []string // checks that could run, without the flag
	gone  []gone
	lack  int // GPUs that only the flag expects
}

// gone is a GPU that no collector serves.
type gone struct {
	at          pci.Address
	basis, slot string
}

// run compares every 30 s until ctx ends.
func (m *missing) run(ctx context.Context) error { return view.Every(ctx, scanInterval, m.compare) }

func (m *missing) compare(now time.Time) {
	boards, err := m.bus.Boards() // without a bus only the flag can expect GPUs
	serving, judged := m.serving(), m.judged()
	elsewhere := len(serving.gpus) > 0 && !slices.ContainsFunc(boards, func(b pci.Board) bool { return serving.gpus[b.Address.Board()] }) // for example with a remote host engine
	out, here := &scan{}, map[pci.Address]bool{}
	// A GPU that was served once has a state of its own, which shows whether it is missing.
	over := func(at pci.Address) {
		if !judged[at].known {
			m.observe(health.Observation{Reason: health.ReasonMissing, PCIBusID: at.String(), Source: onBus, Over: true})
		}
	}
	for _, b := range boards {
		at := b.Address.Board()
		here[at] = true
		unknown := elsewhere || !serving.complete[b.Vendor] || !m.bus.Module(b.Vendor)
		if !expected(&b) || serving.gpus[at] || unknown && !judged[at].missing {
			over(at)
			continue
		}
		out.gone = append(out.gone, gone{b.Address, onBus, b.Slot})
		if !unknown {
			text := fmt.Sprintf("on the PCI bus (slot: %s, driver: %s), and no collector finds it", cmp.Or(b.Slot, "unknown"), cmp.Or(b.Driver, "none"))
			m.observe(health.Observation{Reason: health.ReasonMissing, PCIBusID: b.Address.String(), Time: now, Source: onBus, Text: text})
		}
	}
	if err != nil || elsewhere {
		judged = nil // GPUs that left the bus become unknown
	} else if slices.Contains(slices.Collect(maps.Values(serving.complete)), true) {
		out.bases = append(out.bases, onBus)
	}
	for at, j := range judged {
		if j.known && !slices.Contains(out.bases, lastKnown) {
			out.bases = append(out.bases, lastKnown)
		}
		switch {
		case here[at] || serving.gpus[at]:
		case j.known:
			out.gone = append(out.gone, gone{at, lastKnown, ""})
		default:
			over(at)
		}
	}
	if m.expected > 0 {
		lack := m.expected - len(serving.gpus) - len(serving.others) - len(out.gone)
		switch {
		case lack <= 0:
			m.lacking = time.Time{}
		case m.lacking.IsZero() || now.Before(m.lacking):
			m.lacking = now
		case now.Sub(m.lacking) >= health.MissingFor:
			out.lack = lack
		}
	}
	m.last.Store(out)
}

// judgement is the verdict on a GPU.
type judgement struct {
	known   bool // a collector has served it
	missing bool
}

func (m *missing) judged() map[pci.Address]judgement {
	out := map[pci.Address]judgement{}
	for _, v := range m.verdicts.Load().Verdicts {
		if at, ok := pci.Parse(v.Device.PCIBusID); ok && v.Device.Level == field.GPU {
			missing := slices.ContainsFunc(v.Conditions, func(c events.Condition) bool { return c.Reason == health.ReasonMissing })
			out[at.Board()] = judgement{v.Collector != "", missing}
		}
	}
	return out
}

// expected reports whether a driver and a collector should serve the board. A board bound to another driver, such as
// vfio-pci, was assigned to another use. The machine's display without a driver does not compute.
func expected(b *pci.Board) bool {
	return !b.Switch && !b.Virtual && !b.Hidden && (b.Driver == b.Vendor.Module || b.Driver == "" && !b.Display)
}

// served is a snapshot of the GPUs that collectors serve.
type served struct {
	// complete holds the vendors with all GPUs served, as far as the driver reports them: a collector is up, and neither
	// the user's selection nor the container hides any.
	complete map[*field.Vendor]bool
	gpus     map[pci.Address]bool // boards served, or released by an operator
	others   map[string]bool      // numbers of served GPUs without an address
}

func (m *missing) serving() served {
	out := served{complete: map[*field.Vendor]bool{}, gpus: map[pci.Address]bool{}, others: map[string]bool{}}
	for _, c := range m.engine.Status() {
		if v := m.engine.Vendor(c.Name); v != nil && c.Up {
			out.complete[v] = !m.hidden[v]
		}
		for _, d := range c.Devices {
			if d.State == session.Absent || d.Device.Level > field.ComputeInstance {
				continue
			}
			if at, ok := pci.Parse(d.Device.PCIBusID); ok {
				out.gpus[at.Board()] = true
			} else {
				out.others[d.Device.GPU] = true
			}
		}
	}
	return out
}

var descMissing = prometheus.NewDesc("warpgauge_gpus_missing",
	"GPUs that this node should have and no collector serves, by what says so: pci (on the bus), last_known (served before) or flag (--expected-gpus). sum() is how many are missing.",
	[]string{"basis", "pci_bus_id", "slot"}, nil)

// Describe implements prometheus.Collector.
func (m *missing) Describe(ch chan<- *prometheus.Desc) { ch <- descMissing }

// Collect implements prometheus.Collector.
func (m *missing) Collect(ch chan<- prometheus.Metric) {
	s := m.last.Load()
	if s == nil {
		return
	}
	gauge := func(n int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(descMissing, prometheus.GaugeValue, float64(n), labels...)
	}
	judged, found := m.judged(), map[string]bool{}
	for _, g := range s.gone {
		if judged[g.at.Board()].missing {
			found[g.basis] = true
			gauge(1, g.basis, g.at.String(), g.slot)
		}
	}
	for _, b := range s.bases {
		if !found[b] {
			gauge(0, b, "", "")
		}
	}
	if m.expected > 0 {
		gauge(s.lack, byFlag, "", "")
	}
}
