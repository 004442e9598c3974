package session

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// SampleDuration is the metric with the duration of samples, by source.
const SampleDuration = "warpgauge_sample_duration_seconds"

const (
	missedTicks = "warpgauge_missed_ticks_total"
	callSeconds = "warpgauge_library_call_seconds_total"
)

// metrics are the session's own metrics.
type metrics struct {
	duration     *prometheus.HistogramVec
	failed       *prometheus.CounterVec
	missed       *prometheus.CounterVec
	implausible  *prometheus.CounterVec
	rescanErrors prometheus.Counter
	leftOut      prometheus.Gauge
}

func newMetrics(r prometheus.Registerer, s *Session) *metrics {
	constant := prometheus.Labels{"collector": s.name}
	m := &metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:        SampleDuration,
			Help:        "Time that one sample of a source took inside the vendor library; source is the id of its first device.",
			Buckets:     []float64{1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10},
			ConstLabels: constant,
		}, []string{"source"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name:        "warpgauge_sample_errors_total",
			Help:        "Samples in which a device of the source failed.",
			ConstLabels: constant,
		}, []string{"source"}),
		missed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name:        missedTicks,
			Help:        "Ticks that passed while the source's last sample was still running.",
			ConstLabels: constant,
		}, []string{"source"}),
		implausible: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name:        "warpgauge_implausible_values_total",
			Help:        "Values dropped because they lie outside the field's plausible range.",
			ConstLabels: constant,
		}, []string{"field"}),
		rescanErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name:        "warpgauge_rescan_errors_total",
			Help:        "Searches for new or gone devices that failed.",
			ConstLabels: constant,
		}),
		leftOut: prometheus.NewGauge(prometheus.GaugeOpts{
			Name:        "warpgauge_devices_left_out",
			Help:        "Devices that the library reports and that are not shown: they have the id of another one, or there are more than possible.",
			ConstLabels: constant,
		}),
	}
	r.MustRegister(m.duration, m.failed, m.missed, m.implausible, m.rescanErrors, m.leftOut, calls{s})
	return m
}

var (
	descCalls = prometheus.NewDesc("warpgauge_library_calls_total",
		"Calls into the vendor library by kind. Only from collectors that count them.", []string{"collector", "call"}, nil)
	descCallTime = prometheus.NewDesc(callSeconds,
		"Time spent in them.", []string{"collector", "call"}, nil)
)

// Costs is the cost of a session's library calls since it began.
type Costs struct {
	Collector string
	Sources   map[string]SourceCost
	Calls     map[string]time.Duration // by kind, if the collector counts calls
}

// SourceCost is the cost of the samples of a source.
type SourceCost struct {
	Samples     uint64
	Time        time.Duration // in the library
	MissedTicks uint64
}

// CostsOf reads the costs from a session's own metrics, which a child sends as well.
func CostsOf(collector string, families []*dto.MetricFamily) Costs {
	c := Costs{Collector: collector, Sources: map[string]SourceCost{}, Calls: map[string]time.Duration{}}
	for _, f := range families {
		_, label := Family(f.GetName())
		for _, m := range f.GetMetric() {
			i := slices.IndexFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == label })
			if i < 0 {
				continue
			}
			key := m.GetLabel()[i].GetValue()
			one := c.Sources[key]
			switch f.GetName() {
			case SampleDuration:
				one.Samples, one.Time = m.GetHistogram().GetSampleCount(), seconds(m.GetHistogram().GetSampleSum())
				c.Sources[key] = one
			case missedTicks:
				one.MissedTicks = uint64(m.GetCounter().GetValue())
				c.Sources[key] = one
			case callSeconds:
				c.Calls[key] = seconds(m.GetCounter().GetValue())
			}
		}
	}
	return c
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Family returns the type of a session metric, and the label that distinguishes its series in addition to collector.
// The label is collector itself if there is one series, and "" if no session has the metric.
func Family(name string) (kind dto.MetricType, label string) {
	switch name {
	case SampleDuration:
		return dto.MetricType_HISTOGRAM, "source"
	case "warpgauge_sample_errors_total", missedTicks:
		return dto.MetricType_COUNTER, "source"
	case "warpgauge_implausible_values_total":
		return dto.MetricType_COUNTER, "field"
	case "warpgauge_rescan_errors_total":
		return dto.MetricType_COUNTER, "collector"
	case "warpgauge_devices_left_out":
		return dto.MetricType_GAUGE, "collector"
	case "warpgauge_library_calls_total", callSeconds:
		return dto.MetricType_COUNTER, "call"
	}
	return 0, ""
}

// calls reports the cost of library calls.
type calls struct{ s *Session }

func (c calls) Describe(ch chan<- *prometheus.Desc) {
	ch <- descCalls
	ch <- descCallTime
}

func (c calls) Collect(ch chan<- prometheus.Metric) {
	b := c.s.bound.Load()
	if b == nil {
		return
	}
	sum := make(map[string]collector.CallCost)
	for _, w := range b.workers {
		if m, ok := w.source.(collector.CallMeter); ok {
			for _, cost := range m.Calls() {
				was := sum[cost.Call]
				sum[cost.Call] = collector.CallCost{Count: was.Count + cost.Count, Time: was.Time + cost.Time}
			}
		}
	}
	for name, cost := range sum {
		ch <- prometheus.MustNewConstMetric(descCalls, prometheus.CounterValue, float64(cost.Count), c.s.name, name)
		ch <- prometheus.MustNewConstMetric(descCallTime, prometheus.CounterValue, cost.Time.Seconds(), c.s.name, name)
	}
}

var (
	deviceLabels = []string{"collector", "device", "gpu"}

	descCollectorUp = prometheus.NewDesc("warpgauge_collector_up",
		"1 if the collector is open and its devices are sampled.", []string{"collector"}, nil)
	descCollectorProblem = prometheus.NewDesc("warpgauge_collector_problem",
		"1 for the reason why the collector is not open, or not with the fields last asked for.", []string{"collector", "cause"}, nil)
	descDevices = prometheus.NewDesc("warpgauge_devices",
		"Devices of the collector, links and cores included, by state.", []string{"collector", "state"}, nil)
	descExpected = prometheus.NewDesc("warpgauge_devices_expected",
		"GPUs, switches and network adapters that the collector has found within the last hour, present or not.", []string{"collector"}, nil)
	descState = prometheus.NewDesc("warpgauge_device_state",
		"1, labelled with the state that the device is in: up, stalled (no answer or no new values), lost (the library says so), "+
			"absent (no longer found) or released (not sampled).", append(deviceLabels, "state"), nil)
	descProblem = prometheus.NewDesc("warpgauge_device_problem",
		"1 for the reason why the device is not up.", append(deviceLabels, "cause"), nil)
	descAge = prometheus.NewDesc("warpgauge_sample_age_seconds",
		"Age of the device's values: since the vendor's library has read them if it keeps them (DCGM), else since the last successful sample. Absent before the first.", deviceLabels, nil)
	descShare = prometheus.NewDesc("warpgauge_instance_share_ratio",
		"Part of its GPU that a MIG instance is, by compute slices, or an AMD partition. Absent if it is not known.", []string{"collector", "gpu", "UUID", "GPU_I_ID"}, nil)
)

// CollectStates sends the state of a collector and its devices as metrics.
func CollectStates(ch chan<- prometheus.Metric, st CollectorStatus) {
	now := time.Now()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(descCollectorUp, oneIf(st.Up), st.Name)
	if st.Cause != CauseNone {
		gauge(descCollectorProblem, 1, st.Name, string(st.Cause))
	}
	var count [LastState + 1]int
	expected := 0
	seen, parts := make(map[string]bool, len(st.Devices)), map[string]map[string]bool{}
	for _, d := range st.Devices {
		if d.Device.Level == field.Instance {
			if parts[d.Device.Parent] == nil {
				parts[d.Device.Parent] = map[string]bool{}
			}
			parts[d.Device.Parent][d.Device.ID] = true
		}
	}
	for _, d := range st.Devices {
		count[d.State]++
		if seen[d.Device.ID] {
			continue
		}
		seen[d.Device.ID] = true
		if IsBoard(d.Device) {
			expected++
		}
		if d.Device.Level == field.Link || d.Device.Level == field.Core {
			continue // a node has hundreds of them; they are counted
		}
		labels := []string{st.Name, d.Device.ID, d.Device.GPU}
		gauge(descState, 1, append(labels, d.State.String())...)
		if d.Cause != CauseNone {
			gauge(descProblem, 1, append(labels, string(d.Cause))...)
		}
		if !d.LastSample.IsZero() {
			gauge(descAge, max(0, now.Sub(d.LastSample).Seconds()), labels...)
		}
		if share := d.Device.Share(len(parts[d.Device.Parent])); share > 0 {
			gauge(descShare, share, st.Name, d.Device.GPU, d.Device.UUID, d.Device.Instance.ID)
		}
	}
	for s := Up; s <= LastState; s++ {
		gauge(descDevices, float64(count[s]), st.Name, s.String())
	}
	gauge(descExpected, float64(expected), st.Name)
}

// IsBoard reports whether a device is separate hardware: a GPU, a switch or a network adapter. Instances and links come
// and go with the configuration.
func IsBoard(d collector.Device) bool {
	return d.Parent == "" && (d.Level == field.GPU || d.Level == field.Switch || d.Level == field.ConnectX)
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
