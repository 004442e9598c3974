package sampler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// metrics are the sampler's own. What changes with every sample is counted by
// instruments that the workers resolve once; states are read off Status when
// they are gathered.
type metrics struct {
	duration     *prometheus.HistogramVec
	failed       *prometheus.CounterVec
	missed       *prometheus.CounterVec
	implausible  *prometheus.CounterVec
	opens        *prometheus.CounterVec
	rescanErrors *prometheus.CounterVec
}

func newMetrics() *metrics {
	bySource := []string{"collector", "source"}
	return &metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "warpgauge_sample_duration_seconds",
			Help:    "Time that one sample of a source took inside the vendor library; source is the id of its first device.",
			Buckets: []float64{1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10},
		}, bySource),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warpgauge_sample_errors_total",
			Help: "Samples in which a device of the source failed.",
		}, bySource),
		missed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warpgauge_missed_ticks_total",
			Help: "Ticks that passed while the source's last sample was still running.",
		}, bySource),
		implausible: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warpgauge_implausible_values_total",
			Help: "Values dropped because they lie outside the field's plausible range.",
		}, []string{"collector", "field"}),
		opens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warpgauge_collector_opens_total",
			Help: "Attempts to open a collector: at start, after errors, on reload and when devices change.",
		}, []string{"collector", "result"}),
		rescanErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warpgauge_rescan_errors_total",
			Help: "Searches for new or gone devices that failed.",
		}, []string{"collector"}),
	}
}

func (m *metrics) register(r prometheus.Registerer, s *Sampler) {
	r.MustRegister(m.duration, m.failed, m.missed, m.implausible, m.opens, m.rescanErrors, StateCollector(s.states), callCollector{s})
}

// states are those that the metrics tell.
func (s *Sampler) states() []CollectorStatus {
	all := s.Status()
	if s.o.Aside {
		WithoutDevices(all)
	}
	return all
}

// WithoutDevices takes the devices away from states.
func WithoutDevices(all []CollectorStatus) {
	for i := range all {
		all[i].Devices = nil
	}
}

// dropGone removes the series of sources that old had and now has not.
func (m *metrics) dropGone(name string, old, now *binding) {
	kept := make(map[string]bool)
	for _, w := range now.workers {
		kept[sourceID(w.view.Devices)] = true
	}
	for _, w := range old.workers {
		if id := sourceID(w.view.Devices); !kept[id] {
			m.duration.DeleteLabelValues(name, id)
			m.failed.DeleteLabelValues(name, id)
			m.missed.DeleteLabelValues(name, id)
		}
	}
}

// StateCollector tells the states of collectors and devices, as status has them
// when they are gathered.
func StateCollector(status func() []CollectorStatus) prometheus.Collector {
	return stateCollector{status}
}

type stateCollector struct{ status func() []CollectorStatus }

// callCollector tells what library calls cost.
type callCollector struct{ s *Sampler }

var (
	deviceLabels = []string{"collector", "device", "gpu"}

	descCollectorUp = prometheus.NewDesc("warpgauge_collector_up",
		"1 if the collector is open and its devices are sampled.", []string{"collector"}, nil)
	descCollectorProblem = prometheus.NewDesc("warpgauge_collector_problem",
		"1 for the reason why the collector is not open, or not with the fields last asked for.", []string{"collector", "cause"}, nil)
	descDevices = prometheus.NewDesc("warpgauge_devices",
		"Devices of the collector, links and cores included, by state.", []string{"collector", "state"}, nil)
	descState = prometheus.NewDesc("warpgauge_device_state",
		"1 for the state the device is in, 0 for the others: up, stalled (no answer or no new values), lost or released (nobody looks).", append(deviceLabels, "state"), nil)
	descProblem = prometheus.NewDesc("warpgauge_device_problem",
		"1 for the reason why the device is not up.", append(deviceLabels, "cause"), nil)
	descCalls = prometheus.NewDesc("warpgauge_library_calls_total",
		"Calls into the vendor library by kind. Only from collectors that can tell.", []string{"collector", "call"}, nil)
	descCallTime = prometheus.NewDesc("warpgauge_library_call_seconds_total",
		"Time spent in them.", []string{"collector", "call"}, nil)
	descAge = prometheus.NewDesc("warpgauge_sample_age_seconds",
		"Age of the device's last successful sample. Absent before the first.", deviceLabels, nil)
)

func (c stateCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descCollectorUp, descCollectorProblem, descDevices, descState, descProblem, descAge} {
		ch <- d
	}
}

func (c callCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- descCalls
	ch <- descCallTime
}

func (c stateCollector) Collect(ch chan<- prometheus.Metric) {
	now := time.Now()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, st := range c.status() {
		gauge(descCollectorUp, oneIf(st.Up), st.Name)
		if st.Cause != CauseNone {
			gauge(descCollectorProblem, 1, st.Name, string(st.Cause))
		}
		var count [LastState + 1]int
		seen := make(map[string]bool, len(st.Devices))
		for _, d := range st.Devices {
			count[d.State]++
			if !hasState(d.Device) || seen[d.Device.ID] {
				continue
			}
			seen[d.Device.ID] = true
			labels := []string{st.Name, d.Device.ID, d.Device.GPU}
			for s := Up; s <= LastState; s++ {
				gauge(descState, oneIf(s == d.State), append(labels, s.String())...)
			}
			if d.Cause != CauseNone {
				gauge(descProblem, 1, append(labels, string(d.Cause))...)
			}
			if !d.LastSample.IsZero() {
				gauge(descAge, max(0, now.Sub(d.LastSample).Seconds()), labels...)
			}
		}
		for s := Up; s <= LastState; s++ {
			gauge(descDevices, float64(count[s]), st.Name, s.String())
		}
	}
}

func (c callCollector) Collect(ch chan<- prometheus.Metric) {
	for _, k := range c.s.keepers {
		for _, call := range k.calls.with(&k.current) {
			ch <- prometheus.MustNewConstMetric(descCalls, prometheus.CounterValue, float64(call.Count), k.name, call.Call)
			ch <- prometheus.MustNewConstMetric(descCallTime, prometheus.CounterValue, call.Time.Seconds(), k.name, call.Call)
		}
	}
}

// hasState keeps links and cores, of which a node has hundreds, out of the
// per-device series; they are counted in warpgauge_devices.
func hasState(d collector.Device) bool { return d.Level != field.Link && d.Level != field.Core }

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
