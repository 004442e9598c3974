package supervisor

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/pkg/session"
)

// counts holds a supervisor's counters across sessions.
type counts struct {
	opens    *prometheus.CounterVec // by result
	ends     *prometheus.CounterVec // ended children, by reason
	restarts prometheus.Counter     // all of ends

	mu    sync.Mutex
	cpu   time.Duration // of ended children
	shown time.Duration // largest value ever reported: /proc and wait4 use different units
}

func newCounts(collector string) *counts {
	labels := prometheus.Labels{"collector": collector}
	c := &counts{
		opens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warpgauge_collector_opens_total", ConstLabels: labels,
			Help: "Attempts to open a collector: at start, after errors, on reload and when devices change.",
		}, []string{"result"}),
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warpgauge_collector_child_ends_total", ConstLabels: labels,
			Help: "The same by reason.",
		}, []string{"reason"}),
		restarts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "warpgauge_collector_restarts_total", ConstLabels: labels,
			Help: "Child processes that ended, or had to be replaced, and were started again.",
		}),
	}
	for _, result := range []string{"success", "error"} {
		c.opens.WithLabelValues(result)
	}
	for _, reason := range reasons {
		c.ends.WithLabelValues(reason)
	}
	return c
}

// ended adds the processor time of a child, if it has ended.
func (c *counts) ended(p *child) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cpu := p.cpu.Swap(0); cpu > 0 {
		p.cost.Store(&usage{})
		c.cpu += time.Duration(cpu)
	}
}

// used returns the processor time of all children. p is the running child, or nil.
func (c *counts) used(p *child) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	cpu := c.cpu
	if p != nil {
		cpu += p.cost.Load().cpu
	}
	c.shown = max(c.shown, cpu)
	return c.shown
}

var (
	byCollector = []string{"collector"}
	descChildUp = prometheus.NewDesc("warpgauge_collector_child_up",
		"1 if the child process that samples the collector is in service.", byCollector, nil)
	descChildPID = prometheus.NewDesc("warpgauge_collector_child_pid",
		"Process id of the child. Absent while there is none.", byCollector, nil)
	descChildMemory = prometheus.NewDesc("warpgauge_collector_child_resident_bytes",
		"Resident memory of the child, the rings that it shares included. Absent while there is none.", byCollector, nil)
	descChildCPU = prometheus.NewDesc("warpgauge_collector_child_cpu_seconds_total",
		"User and system time of the collector's children.", byCollector, nil)
	descAbandoned = prometheus.NewDesc("warpgauge_collector_abandoned_children",
		"1 while a child that was killed does not end. No other is started meanwhile.", byCollector, nil)
)

var _ prometheus.Collector = (*Supervisor)(nil)

// Describe describes nothing: several supervisors have the same families, and only a running session knows its own.
func (s *Supervisor) Describe(chan<- *prometheus.Desc) {}

// Collect sends the states of the collector and its devices, the supervisor's counters, and the session's costs.
// It reads memory only.
func (s *Supervisor) Collect(ch chan<- prometheus.Metric) {
	st := s.Status()
	if s.o.Hidden {
		st.Devices = nil
	}
	session.CollectStates(ch, st)
	life := s.now.Load().life
	s.counts.opens.Collect(ch)
	if s.o.Command != nil {
		s.counts.ends.Collect(ch)
		s.counts.restarts.Collect(ch)
		s.collectChild(ch, life, st.Up)
	}
	if life != nil {
		if costs := life.costs(); costs != nil {
			costs.Collect(ch)
		}
	}
}

func (s *Supervisor) collectChild(ch chan<- prometheus.Metric, life life, serves bool) {
	emit := func(d *prometheus.Desc, t prometheus.ValueType, v float64) {
		ch <- prometheus.MustNewConstMetric(d, t, v, s.o.Name)
	}
	up, abandoned := 0.0, 0.0
	p, ok := life.(*child)
	if ok {
		emit(descChildPID, prometheus.GaugeValue, float64(p.pid))
		if used := p.cost.Load(); used.resident != 0 {
			emit(descChildMemory, prometheus.GaugeValue, float64(used.resident))
		}
		if serves {
			up = 1
		}
		if p.stuck.Load() {
			abandoned = 1
		}
	}
	emit(descChildUp, prometheus.GaugeValue, up)
	emit(descChildCPU, prometheus.CounterValue, s.counts.used(p).Seconds())
	emit(descAbandoned, prometheus.GaugeValue, abandoned)
}

// Costs returns the library costs of the session in service.
func (s *Supervisor) Costs() session.Costs {
	if life := s.now.Load().life; life != nil {
		if c := life.costs(); c != nil {
			return *c
		}
	}
	return session.Costs{Collector: s.o.Name}
}
