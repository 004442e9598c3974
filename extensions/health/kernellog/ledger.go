package kernellog

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/extensions/health/pci"
)

// Reporters of an XID.
const (
	byBoth   = "both"
	byDriver = "driver" // NVML or DCGM
	byLog    = "kernel_log"
)

const (
	// burst is within what time lines of one XID of a GPU are about one error: the driver
	// writes an exception of many SMs into a line or more for each, and reports it once.
	burst     = time.Second
	maxKeys   = 1024 // pairs of GPU and code that wait for the second report
	maxBursts = 16   // per pair
	maxDriver = 64
	maxCodes  = 64 // label values; further codes become "other"
)

// GPU is the device of a report.
type GPU struct {
	Address pci.Address
	Number  string // label gpu; "" if no collector serves it
}

// Ledger counts each fault once, even if both the driver and the kernel log report it. It is safe for
// concurrent use.
type Ledger struct {
	window time.Duration
	now    func() time.Time

	mu      sync.Mutex
	waiting map[xidKey]*reports
	folded  map[eventKey]time.Time
	totals  map[eventKey]int
	codes   map[int]bool

	xids, events *prometheus.CounterVec
}

type xidKey struct {
	address pci.Address
	number  string // for a GPU without an address
	code    int
}

type eventKey struct {
	Address pci.Address
	kind    Kind
	code    int
	part    string
}

// reports holds the undecided reports of one XID on one GPU.
type reports struct {
	gpu    GPU
	code   int
	bursts []lines
	driver []report // without a matching line
}

// report is a report from the driver.
type report struct{ at, arrived time.Time }

// lines holds the log lines of one error.
type lines struct {
	first, last, arrived time.Time
	n, matched           int // matching reports of the driver
}

// NewLedger returns an empty Ledger. A driver's report and a log line within window count as the
// same XID.
func NewLedger(window time.Duration) *Ledger {
	return &Ledger{
		window: window, now: time.Now,
		waiting: map[xidKey]*reports{}, folded: map[eventKey]time.Time{}, totals: map[eventKey]int{}, codes: map[int]bool{},
		xids: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warpgauge_xid_witness_total",
			Help: "XIDs by who reported them: driver (NVML or DCGM), kernel_log, or both; each is counted once, when its second witness can no longer come. Only while the kernel's log is read.",
		}, []string{"gpu", "pci_bus_id", "witness", "xid"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warpgauge_kernel_log_events_total",
			Help: "Faults and resets of GPUs and NVSwitches in the kernel's log, by kind. Repeats within a second are one.",
		}, []string{"gpu", "kind", "pci_bus_id"}),
	}
}

// Driver records an XID from a vendor library and reports whether it is new.
func (l *Ledger) Driver(g GPU, code int, at time.Time) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.reportsLocked(g, code)
	for i := range r.bursts {
		if b := &r.bursts[i]; b.matched < b.n && at.After(b.first.Add(-l.window)) && at.Before(b.last.Add(l.window)) {
			b.matched++
			l.countLocked(r, byBoth)
			return b.matched > 1 // the line counted as the first one
		}
	}
	if len(r.driver) == maxDriver {
		r.driver = r.driver[1:]
		l.countLocked(r, byDriver)
	}
	r.driver = append(r.driver, report{at, l.now()})
	return true
}

// Kernel records an event from the kernel log and reports whether it is new.
func (l *Ledger) Kernel(g GPU, e *Event) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Kind != XID {
		return l.eventLocked(g, e)
	}
	r := l.reportsLocked(g, e.Code)
	b := &lines{}
	if n := len(r.bursts); n > 0 {
		b = &r.bursts[n-1]
	}
	first := b.n == 0 || e.Time.Sub(b.last) > burst || e.Time.Before(b.first)
	if first {
		if len(r.bursts) == maxBursts {
			l.decideBurstLocked(r, &r.bursts[0])
			r.bursts = r.bursts[1:]
		}
		r.bursts = append(r.bursts, lines{first: e.Time})
		b = &r.bursts[len(r.bursts)-1]
		l.events.WithLabelValues(g.Number, string(XID), g.Address.String()).Inc()
	}
	b.last, b.arrived, b.n = e.Time, l.now(), b.n+1
	if at := slices.IndexFunc(r.driver, func(d report) bool { return d.at.Sub(e.Time).Abs() < l.window }); at >= 0 {
		r.driver = slices.Delete(r.driver, at, at+1)
		b.matched++
		l.countLocked(r, byBoth)
		return false
	}
	return first
}

// eventLocked counts an event that only the log reports.
func (l *Ledger) eventLocked(g GPU, e *Event) bool {
	key := eventKey{e.Address, e.Kind, e.Code, e.Block + e.Link}
	if e.Total { // repeated whenever RAS counters are read
		before := l.totals[key]
		if len(l.totals) == maxKeys {
			clear(l.totals)
		}
		l.totals[key] = e.Count
		if e.Count == before { // a lower total follows a driver reload
			return false
		}
	}
	if last, seen := l.folded[key]; seen && e.Time.Sub(last).Abs() < burst {
		return false
	}
	if len(l.folded) == maxKeys {
		clear(l.folded)
	}
	l.folded[key] = e.Time
	l.events.WithLabelValues(g.Number, string(e.Kind), g.Address.String()).Inc()
	return true
}

// reportsLocked returns the undecided reports, without expired ones.
func (l *Ledger) reportsLocked(g GPU, code int) *reports {
	key := xidKey{address: g.Address.Board(), code: code}
	if g.Address == (pci.Address{}) {
		key.number = g.Number
	}
	r := l.waiting[key]
	if r == nil {
		if len(l.waiting) >= maxKeys {
			l.decideAllLocked(l.now())
		}
		if len(l.waiting) >= maxKeys { // more than any real node has at a time
			l.decideAllLocked(l.now().Add(24 * time.Hour))
		}
		r = &reports{code: code}
		l.waiting[key] = r
	}
	r.gpu = g
	l.decideLocked(r, l.now())
	return r
}

func (l *Ledger) decideAllLocked(now time.Time) {
	for key, r := range l.waiting {
		if l.decideLocked(r, now); len(r.bursts)+len(r.driver) == 0 {
			delete(l.waiting, key)
		}
	}
}

// decideLocked counts reports whose second report can no longer come.
func (l *Ledger) decideLocked(r *reports, now time.Time) {
	r.bursts = slices.DeleteFunc(r.bursts, func(b lines) bool {
		if now.Sub(b.arrived) <= l.window {
			return false
		}
		l.decideBurstLocked(r, &b)
		return true
	})
	r.driver = slices.DeleteFunc(r.driver, func(d report) bool {
		if now.Sub(d.arrived) <= l.window {
			return false
		}
		l.countLocked(r, byDriver)
		return true
	})
}

func (l *Ledger) decideBurstLocked(r *reports, b *lines) {
	if b.matched == 0 {
		l.countLocked(r, byLog)
	}
}

func (l *Ledger) countLocked(r *reports, witness string) {
	xid := "other"
	if l.codes[r.code] || len(l.codes) < maxCodes && r.code > 0 {
		l.codes[r.code] = true
		xid = strconv.Itoa(r.code)
	}
	l.xids.WithLabelValues(r.gpu.Number, r.gpu.Address.String(), witness, xid).Inc()
}

// Describe implements prometheus.Collector.
func (l *Ledger) Describe(ch chan<- *prometheus.Desc) {
	l.xids.Describe(ch)
	l.events.Describe(ch)
}

// Collect implements prometheus.Collector.
func (l *Ledger) Collect(ch chan<- prometheus.Metric) {
	l.mu.Lock()
	l.decideAllLocked(l.now())
	l.mu.Unlock()
	l.xids.Collect(ch)
	l.events.Collect(ch)
}
