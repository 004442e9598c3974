package supervisor

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/pkg/session"
)

// counts holds a supervisor's counters across sessions.
type counts struct {
	mu sync.Mutex
	counted
}

type counted struct {
	restarts map[string]uint64
	opens    map[bool]uint64 // by success
	cpu      time.Duration   // of ended children
	shown    time.Duration   // largest value ever reported: /proc and wait4 use different units
	life     life            // the running session; nil: none
}

func (c *counts) init() { c.restarts, c.opens = map[string]uint64{}, map[bool]uint64{} }

func (c *counts) begin(l life) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.life = l
}

func (c *counts) end(l life, stuck bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.life = nil
	if p, ok := l.(*child); ok && !stuck {
		c.cpu += p.cpu
	}
}

// snapshot returns a copy: readers of metrics hold no lock that the supervisor takes.
func (c *counts) snapshot() counted {
	c.mu.Lock()
	defer c.mu.Unlock()
	cpu := c.cpu
	if p, ok := c.life.(*child); ok {
		cpu += p.cost.Load().cpu
	}
	c.shown = max(c.shown, cpu)
	out := c.counted
	out.restarts, out.opens = maps.Clone(c.restarts), maps.Clone(c.opens)
	return out
}

func (c *counts) open(success bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opens[success]++
}

func (c *counts) restarted(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.restarts[reason]++
}

var (
	byCollector = []string{"collector"}
	descOpens   = prometheus.NewDesc("warpgauge_collector_opens_total",
		"Attempts to open a collector: at start, after errors, on reload and when devices change.", []string{"collector", "result"}, nil)
	descRestarts = prometheus.NewDesc("warpgauge_collector_restarts_total",
		"Child processes that ended, or had to be replaced, and were started again.", byCollector, nil)
	descEnds = prometheus.NewDesc("warpgauge_collector_child_ends_total",
		"The same by reason.", []string{"collector", "reason"}, nil)
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
	emit := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, v, append([]string{s.o.Name}, labels...)...)
	}
	c := s.counts.snapshot()
	emit(descOpens, prometheus.CounterValue, float64(c.opens[true]), "success")
	emit(descOpens, prometheus.CounterValue, float64(c.opens[false]), "error")
	if s.o.Command != nil {
		var restarts uint64
		for _, r := range reasons {
			restarts += c.restarts[r]
			emit(descEnds, prometheus.CounterValue, float64(c.restarts[r]), r)
		}
		emit(descRestarts, prometheus.CounterValue, float64(restarts))
		up, abandoned := 0.0, 0.0
		if p, ok := c.life.(*child); ok {
			used := p.cost.Load()
			emit(descChildPID, prometheus.GaugeValue, float64(p.pid))
			if used.resident != 0 {
				emit(descChildMemory, prometheus.GaugeValue, float64(used.resident))
			}
			if st.Up {
				up = 1
			}
			if p.stuck.Load() {
				abandoned = 1
			}
		}
		emit(descChildUp, prometheus.GaugeValue, up)
		emit(descChildCPU, prometheus.CounterValue, c.shown.Seconds())
		emit(descAbandoned, prometheus.GaugeValue, abandoned)
	}
	if c.life != nil {
		if costs := c.life.costs(); costs != nil {
			costs.Collect(ch)
		}
	}
}

// Costs returns what the session in service has spent in the vendor's library.
func (s *Supervisor) Costs() session.Costs {
	if life := s.counts.snapshot().life; life != nil {
		if c := life.costs(); c != nil {
			return *c
		}
	}
	return session.Costs{Collector: s.o.Name}
}

// Examples is a collector of the metrics that a Supervisor has only while a child runs, so that the generated
// documentation can list them.
func Examples(name string) prometheus.Collector { return examples(name) }

type examples string

func (examples) Describe(chan<- *prometheus.Desc) {}

func (e examples) Collect(ch chan<- prometheus.Metric) {
	for _, d := range []*prometheus.Desc{descChildUp, descChildPID, descChildMemory, descAbandoned} {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, 1, string(e))
	}
	ch <- prometheus.MustNewConstMetric(descChildCPU, prometheus.CounterValue, 1, string(e))
	ch <- prometheus.MustNewConstMetric(descRestarts, prometheus.CounterValue, 0, string(e))
	ch <- prometheus.MustNewConstMetric(descEnds, prometheus.CounterValue, 0, string(e), ReasonExit)
}
