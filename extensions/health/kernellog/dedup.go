package kernellog

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/extensions/health/pci"
)

const (
	// Lines of one XID of a GPU within burst belong to one error: the driver
	// writes an exception of many SMs into a line or more for each, and reports it once.
	burst     = time.Second
	maxKeys   = 1024 // GPUs with each of their faults
	maxBursts = 16   // per pair
	maxDriver = 64
)

// GPU is the device of a report.
type GPU struct {
	Address pci.Address
	Number  string // label gpu; "" if no collector serves it
}

// Deduplicator counts each fault once, even if both the driver and the kernel log report it. It is safe for concurrent use.
type Deduplicator struct {
	*prometheus.CounterVec // events by GPU and kind
	window                 time.Duration

	mu     sync.Mutex
	xids   map[fault]*reports
	others map[fault]*repeats
}

// fault identifies repeats.
type fault struct {
	address pci.Address
	kind    Kind
	code    int
	part    string // faulty block or link, or the number of a GPU without an address
}

// reports holds the newest reports of one XID on one GPU.
type reports struct {
	bursts []lines
	driver []time.Time // without a matching line
}

// lines holds the log lines of one error.
type lines struct {
	first, last time.Time
	n, matched  int // matching reports of the driver
}

// repeats describes the newest line of a fault that only the log reports.
type repeats struct {
	last  time.Time
	total int
}

// NewDeduplicator returns an empty Deduplicator. A driver's report and a log line within window count as the same XID.
func NewDeduplicator(window time.Duration) *Deduplicator {
	counts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "warpgauge_kernel_log_events_total",
		Help: "Faults and resets of GPUs and NVSwitches in the kernel's log, by kind. Repeats within a second are one.",
	}, []string{"gpu", "kind", "pci_bus_id"})
	return &Deduplicator{CounterVec: counts, window: window, xids: map[fault]*reports{}, others: map[fault]*repeats{}}
}

// AddDriverXID records an XID from a vendor library and reports whether it is new.
func (d *Deduplicator) AddDriverXID(g GPU, code int, at time.Time) (news bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.reportsLocked(g, code)
	for i := range r.bursts {
		if b := &r.bursts[i]; b.matched < b.n && at.After(b.first.Add(-d.window)) && at.Before(b.last.Add(d.window)) {
			b.matched++
			return b.matched > 1 // the line counted as the first one
		}
	}
	r.driver = append(r.driver[max(0, len(r.driver)-maxDriver+1):], at)
	return true
}

// AddKernelEvent records an event of the kernel's log. It reports whether the event is new, and whether a library has
// reported the XID.
func (d *Deduplicator) AddKernelEvent(g GPU, e *Event) (news, matched bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e.Kind != XID {
		return d.eventLocked(g, e), false
	}
	r := d.reportsLocked(g, e.Code)
	n := len(r.bursts)
	first := n == 0 || e.Time.Sub(r.bursts[n-1].last) > burst || e.Time.Before(r.bursts[n-1].first)
	if first {
		r.bursts = append(r.bursts[max(0, n-maxBursts+1):], lines{first: e.Time})
		d.countLocked(g, e)
	}
	b := &r.bursts[len(r.bursts)-1]
	b.last, b.n = e.Time, b.n+1
	if at := slices.IndexFunc(r.driver, func(at time.Time) bool { return at.Sub(e.Time).Abs() < d.window }); at >= 0 {
		r.driver = slices.Delete(r.driver, at, at+1)
		b.matched++
	}
	return first && b.matched == 0, b.matched > 0
}

// eventLocked counts an event that only the log reports.
func (d *Deduplicator) eventLocked(g GPU, e *Event) bool {
	r := entry(d.others, fault{e.Address, e.Kind, e.Code, e.Block + e.Link})
	if e.Total { // repeated whenever RAS counters are read
		before := r.total
		r.total = e.Count
		if e.Count == before { // a lower total follows a driver reload
			return false
		}
	}
	if e.Time.Sub(r.last).Abs() < burst {
		return false
	}
	r.last = e.Time
	d.countLocked(g, e)
	return true
}

func (d *Deduplicator) countLocked(g GPU, e *Event) {
	d.WithLabelValues(g.Number, string(e.Kind), g.Address.String()).Inc()
}

func (d *Deduplicator) reportsLocked(g GPU, code int) *reports {
	key := fault{address: g.Address.Board(), kind: XID, code: code}
	if g.Address == (pci.Address{}) {
		key.part = g.Number
	}
	return entry(d.xids, key)
}

// entry returns the entry of a key, which it makes if there is none.
func entry[V any](all map[fault]*V, key fault) *V {
	if all[key] == nil {
		if len(all) == maxKeys { // more than any real node has
			clear(all)
		}
		all[key] = new(V)
	}
	return all[key]
}
