package isolation

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/pkg/sampler"
)

// metrics are those of the supervisor, what its children have counted, and the
// states of devices as a sampler tells them. It is an unchecked collector: which
// families a child has is known when it tells them.
type metrics struct {
	s      *Supervisor
	states prometheus.Collector

	mu       sync.Mutex
	restarts map[string]uint64
	cpu      time.Duration // of children that are gone
	past     tally         // of children that are gone
	cpuShown time.Duration // most that was ever told
}

var _ prometheus.Collector = (*metrics)(nil)

var (
	descRestarts = prometheus.NewDesc("warpgauge_collector_restarts_total",
		"Child processes that ended, or had to be replaced, and were started again, by reason.", []string{"collector", "reason"}, nil)
	descChildUp = prometheus.NewDesc("warpgauge_collector_child_up",
		"1 if the child process that samples the collector is in service.", []string{"collector"}, nil)
	descChildPID = prometheus.NewDesc("warpgauge_collector_child_pid",
		"Process id of the child. Absent while there is none.", []string{"collector"}, nil)
	descChildMemory = prometheus.NewDesc("warpgauge_collector_child_resident_bytes",
		"Resident memory of the child, the rings that it shares included. Absent while there is none.", []string{"collector"}, nil)
	descChildCPU = prometheus.NewDesc("warpgauge_collector_child_cpu_seconds_total",
		"User and system time of the collector's children.", []string{"collector"}, nil)
	descAbandoned = prometheus.NewDesc("warpgauge_collector_abandoned_children",
		"Children that were killed and do not go. While there is one, no other is started.", []string{"collector"}, nil)
)

func newMetrics(s *Supervisor) *metrics {
	return &metrics{
		s: s, states: sampler.StateCollector(s.states),
		restarts: make(map[string]uint64), past: tally{},
	}
}

// states are those that the metrics tell.
func (s *Supervisor) states() []sampler.CollectorStatus {
	all := s.Status()
	if s.o.Aside {
		sampler.WithoutDevices(all)
	}
	return all
}

func (m *metrics) restarted(reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.restarts[reason]++
}

// retire adds what a child that is gone has cost and counted to the past. It may
// be called again for the same child.
func (m *metrics) retire(c *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.buried {
		return
	}
	c.buried = true
	m.cpu += c.cpu
	if counts := c.counts.Load(); counts != nil {
		m.past.add(counts)
	}
}

// Describe describes nothing.
func (m *metrics) Describe(chan<- *prometheus.Desc) {}

// Collect reads memory only.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.states.Collect(ch)
	name := m.s.o.Name
	emit := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, v, append([]string{name}, labels...)...)
	}
	t := m.s.state.Load()
	alive := t.alive

	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range reasons {
		emit(descRestarts, prometheus.CounterValue, float64(m.restarts[r]), r)
	}
	cpu, total := m.cpu, m.past.clone()
	stuck := 0
	for _, c := range alive {
		if c.buried {
			continue
		}
		cpu += c.usage.Load().cpu
		if counts := c.counts.Load(); counts != nil {
			total.add(counts)
		}
		if c.stuck.Load() {
			stuck++
		}
	}
	up := 0.0
	if t.session != nil {
		up = 1
	}
	emit(descChildUp, prometheus.GaugeValue, up)
	if t.pid != 0 {
		emit(descChildPID, prometheus.GaugeValue, float64(t.pid))
	}
	for _, c := range alive {
		if resident := c.usage.Load().resident; c.pid == t.pid && resident != 0 {
			emit(descChildMemory, prometheus.GaugeValue, float64(resident))
		}
	}
	m.cpuShown = max(m.cpuShown, cpu) // /proc and wait4 count in different units
	emit(descChildCPU, prometheus.CounterValue, m.cpuShown.Seconds())
	emit(descAbandoned, prometheus.GaugeValue, float64(stuck))
	total.collect(ch)
}

// Example tells what a Supervisor tells only while it has a child, so that the
// generated documentation lists it without one.
func Example(name string) prometheus.Collector { return example{name} }

type example struct{ name string }

func (example) Describe(chan<- *prometheus.Desc) {}

func (e example) Collect(ch chan<- prometheus.Metric) {
	for _, d := range []*prometheus.Desc{descChildPID, descChildMemory} {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, 1, e.name)
	}
}

// tally sums counters and histograms, by family and labels.
type tally map[string]*tallied

type tallied struct {
	help      string
	labels    []string
	histogram bool
	bounds    []float64
	series    map[string]*counted
}

// add adds m. Of a family that comes in two shapes the first counts.
func (t tally) add(m *metricSet) {
	for i := range m.families {
		f := &m.families[i]
		for j := range f.series {
			t.addSeries(f, &f.series[j])
		}
	}
}

func (t tally) addSeries(f *countedFamily, s *counted) {
	sum := t[f.name]
	if sum == nil {
		sum = &tallied{help: f.help, bounds: f.bounds, histogram: f.histogram, series: make(map[string]*counted)}
		for _, l := range s.labels {
			sum.labels = append(sum.labels, l.name)
		}
		t[f.name] = sum
	}
	if sum.histogram != f.histogram || len(s.labels) != len(sum.labels) || len(s.counts) != len(sum.bounds) {
		return
	}
	var key strings.Builder
	for i, l := range s.labels {
		if l.name != sum.labels[i] {
			return
		}
		key.WriteString(l.value)
		key.WriteByte(0)
	}
	at := sum.series[key.String()]
	if at == nil {
		if len(sum.series) >= maxSeries {
			return
		}
		at = &counted{labels: s.labels, counts: make([]uint64, len(s.counts))}
		sum.series[key.String()] = at
	}
	at.value += s.value
	at.count += s.count
	for i, n := range s.counts {
		at.counts[i] += n
	}
}

func (t tally) clone() tally {
	out := make(tally, len(t))
	for name, f := range t {
		c := *f
		c.series = make(map[string]*counted, len(f.series))
		for key, s := range f.series {
			n := *s
			n.counts = append([]uint64(nil), s.counts...)
			c.series[key] = &n
		}
		out[name] = &c
	}
	return out
}

// collect emits the sums.
func (t tally) collect(ch chan<- prometheus.Metric) {
	for name, f := range t {
		desc := prometheus.NewDesc(name, f.help, f.labels, nil)
		for _, s := range f.series {
			values := make([]string, len(s.labels))
			for i, l := range s.labels {
				values[i] = l.value
			}
			var metric prometheus.Metric
			var err error
			if f.histogram {
				buckets := make(map[float64]uint64, len(f.bounds))
				for i, b := range f.bounds {
					buckets[b] = s.counts[i]
				}
				metric, err = prometheus.NewConstHistogram(desc, s.count, s.value, buckets, values...)
			} else {
				metric, err = prometheus.NewConstMetric(desc, prometheus.CounterValue, s.value, values...)
			}
			if err == nil {
				ch <- metric
			}
		}
	}
}
