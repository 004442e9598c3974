package session

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Costs hold the counts of a session since it began. A child sends them to its parent.
type Costs struct {
	Collector    string
	Began        time.Time
	Sources      map[string]SourceCost         // by the id of a source's first device
	Calls        map[string]collector.CallCost // by kind, if the collector counts calls
	Implausible  map[string]uint64             // dropped values, by field
	RescanErrors uint64
	LeftOut      int64 // devices that cannot be shown
}

// SourceCost is the cost of a source's samples.
type SourceCost struct {
	Samples     uint64
	Time        time.Duration              // in the library
	Within      [len(sampleBuckets)]uint64 // samples up to that duration
	Failed      uint64                     // samples with a failed device
	MissedTicks uint64
}

// sampleBuckets are the upper bounds of the histogram of sample durations, in seconds.
var sampleBuckets = [...]float64{1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10}

// counters holds the counts of a source. Its worker writes them, and any goroutine reads them.
type counters struct {
	durations      [len(sampleBuckets) + 1]atomic.Uint64 // the last one is above all bounds
	time           atomic.Int64
	failed, missed atomic.Uint64
}

func (c *counters) observe(d time.Duration) {
	c.time.Add(int64(d))
	i, _ := slices.BinarySearch(sampleBuckets[:], d.Seconds())
	c.durations[i].Add(1)
}

func (c *counters) cost() SourceCost {
	s := SourceCost{Time: time.Duration(c.time.Load()), Failed: c.failed.Load(), MissedTicks: c.missed.Load()}
	for i := range c.durations {
		s.Samples += c.durations[i].Load()
		if i < len(s.Within) {
			s.Within[i] = s.Samples
		}
	}
	return s
}

var (
	bySource = []string{"collector", "source"}
	byCall   = []string{"collector", "call"}

	descDuration = prometheus.NewDesc("warpgauge_sample_duration_seconds",
		"Time that one sample of a source took inside the vendor library; source is the id of its first device.", bySource, nil)
	descFailed = prometheus.NewDesc("warpgauge_sample_errors_total",
		"Samples in which a device of the source failed.", bySource, nil)
	descMissed = prometheus.NewDesc("warpgauge_missed_ticks_total",
		"Ticks that passed while the source's last sample was still running.", bySource, nil)
	descImplausible = prometheus.NewDesc("warpgauge_implausible_values_total",
		"Values dropped because they lie outside the field's plausible range.", []string{"collector", "field"}, nil)
	descRescanErrors = prometheus.NewDesc("warpgauge_rescan_errors_total",
		"Searches for new or gone devices that failed.", []string{"collector"}, nil)
	descLeftOut = prometheus.NewDesc("warpgauge_devices_left_out",
		"Devices that the library reports and that are not shown: they have the id of another one, or there are more than possible.", []string{"collector"}, nil)
	descCalls = prometheus.NewDesc("warpgauge_library_calls_total",
		"Calls into the vendor library by kind. Only from collectors that count them.", byCall, nil)
	descCallTime = prometheus.NewDesc("warpgauge_library_call_seconds_total",
		"Time spent in them.", byCall, nil)
)

// Collect sends the costs as metrics. Each session counts from 0, so they have its start time.
func (c *Costs) Collect(ch chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetricWithCreatedTimestamp(d, prometheus.CounterValue, v, c.Began, append([]string{c.Collector}, labels...)...)
	}
	for name, s := range c.Sources {
		within := make(map[float64]uint64, len(sampleBuckets))
		for i, bound := range sampleBuckets {
			within[bound] = s.Within[i]
		}
		ch <- prometheus.MustNewConstHistogramWithCreatedTimestamp(descDuration, s.Samples, s.Time.Seconds(), within, c.Began, c.Collector, name)
		count(descFailed, float64(s.Failed), name)
		count(descMissed, float64(s.MissedTicks), name)
	}
	for name, cost := range c.Calls {
		count(descCalls, float64(cost.Count), name)
		count(descCallTime, cost.Time.Seconds(), name)
	}
	for name, n := range c.Implausible {
		count(descImplausible, float64(n), name)
	}
	count(descRescanErrors, float64(c.RescanErrors))
	ch <- prometheus.MustNewConstMetric(descLeftOut, prometheus.GaugeValue, float64(c.LeftOut), c.Collector)
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
	gauge(descCollectorUp, map[bool]float64{true: 1}[st.Up], st.Name)
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
			continue // a node has hundreds of links, so only count them
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
