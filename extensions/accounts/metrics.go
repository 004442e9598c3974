package accounts

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/extensions/accounts/report"
	"warpgauge/pkg/field"
)

// labels identify an account. Labels of a pod differ from those of scrape targets, as in warpgauge_device_owner.
var labels = []string{"gpu", "UUID", "owner", "owner_namespace", "owner_pod", "pod_uid", "owner_container", "hpc_job"}

func desc(name, help string, more ...string) *prometheus.Desc {
	return prometheus.NewDesc("warpgauge_owner_"+name, help, append(append([]string{}, labels...), more...), nil)
}

var (
	descEnergy = desc("energy_joules_total",
		"Energy that a board has used while the owner had it, by source (counter: differences of the board's counter; power: power times time), by how the owner's part was found (whole: it had the board alone; activity: of processes or MIG instances; slices: sizes of MIG instances, if all were idle; equal), and by the state of the part (busy, idle, unknown). The increases of all owners, with the kinds nobody and unattributed, add up to the board's.",
		"source", "method", "state")
	descHeld      = desc("gpu_seconds_total", "Seconds that the owner has had the board, times its part of the board.")
	descTime      = desc("time_seconds_total", "warpgauge_owner_gpu_seconds_total by activity: compute (the busiest pipe of the SMs), memory (the memory was active, and no pipe), waiting (a kernel ran, and neither was active), throttled (a kernel ran, and the clocks were held down), running (a kernel ran, and the list has no readings of pipes), idle (no kernel ran), unknown (no reading says).", "activity")
	descBusy      = desc("busy_seconds_total", "Seconds in which something of the owner ran, by the utilisation of each sample.")
	descTensor    = desc("tensor_seconds_total", "Seconds of the owner times the activity of the tensor pipe. Only if DCGM_FI_PROF_PIPE_TENSOR_ACTIVE is read.")
	descOFU       = desc("ofu_seconds_total", "Seconds of the owner times the activity of the tensor pipe and, in the same sample, the clock as a share of its peak. Only for models whose peak is known.")
	descMemory    = desc("memory_byte_seconds_total", "Memory in use by the owner, times seconds.")
	descPeak      = desc("memory_peak_bytes", "Largest memory in use by the owner.")
	descThrottled = desc("throttled_seconds_total", "GPU seconds of the owner in which the clocks were held down, by reason.", "clock_event")
	descXIDs      = desc("xids_total", "XIDs of the board while the owner had it.")
	descUnused    = desc("unused_seconds", "Seconds since the owner used its part of the board last, or came: by a sample with a utilisation of 5 %, or 1 % on average. Absent if no reading says, and once the owner has left.")
	descIdle      = desc("idle", "1 if warpgauge_owner_unused_seconds is at least --account-idle-after, by what is known of the owner's processes on the board: no_process, process (they do nothing), unknown.", "reason")
	descUntold    = prometheus.NewDesc("warpgauge_owner_pod_events_dropped_total", "Pods that have ended without an event, because the API server refused it or too many waited. Only with --account-pod-events.", nil, nil)
	descDropped   = prometheus.NewDesc("warpgauge_owners_dropped_total", "Owners that have left and are on the page no more, although they were not scraped twice, because others came after them.", nil, nil)
)

var descs = []*prometheus.Desc{
	descEnergy, descHeld, descTime, descBusy, descTensor, descOFU, descMemory, descPeak, descThrottled, descXIDs, descUnused, descIdle, descUntold, descDropped,
}

// metrics returns the page.
func metrics(all []copied, dropped uint64, p *PodEvents) (out []prometheus.Metric) {
	for i := range all {
		out = all[i].metrics(out)
	}
	if p != nil {
		out = append(out, prometheus.MustNewConstMetric(descUntold, prometheus.CounterValue, float64(p.dropped.Load())))
	}
	return append(out, prometheus.MustNewConstMetric(descDropped, prometheus.CounterValue, float64(dropped)))
}

func (a *copied) metrics(out []prometheus.Metric) []prometheus.Metric {
	values := []string{a.device.GPU, a.device.UUID, a.owner.Kind, a.owner.Namespace, a.owner.Pod, a.owner.UID, a.owner.Container, a.owner.Job}
	for i := range values {
		values[i] = strings.ToValidUTF8(values[i], "\uFFFD")
	}
	came := time.Unix(0, a.came)
	gauge := func(d *prometheus.Desc, v float64, more ...string) {
		out = append(out, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, slices.Concat(values, more)...))
	}
	counter := func(d *prometheus.Desc, v float64, more ...string) {
		out = append(out, prometheus.MustNewConstMetricWithCreatedTimestamp(d, prometheus.CounterValue, v, came, slices.Concat(values, more)...))
	}
	for source := range a.energy {
		for method := range a.energy[source] {
			for state, e := range a.energy[source][method] {
				if e > 0 {
					counter(descEnergy, float64(e)/1e6, sourceNames[source], methodNames[method], stateNames[state])
				}
			}
		}
	}
	counter(descHeld, a.held())
	for kind, seconds := range a.spent {
		if seconds > 0 || kind == spentUnknown {
			counter(descTime, seconds, kindNames[kind])
		}
	}
	for _, m := range []struct {
		desc *prometheus.Desc
		of   *report.Histogram
	}{{descBusy, &a.busy}, {descTensor, &a.tensor}, {descOFU, &a.ofu}} {
		if m.of.Seconds() > 0 {
			counter(m.desc, m.of.Sum())
		}
	}
	if a.size > 0 {
		counter(descMemory, a.memory)
		gauge(descPeak, a.peak)
	}
	for bit, seconds := range a.throttled {
		if reason, known := field.ClockReason(bit); known && seconds > 0 {
			counter(descThrottled, seconds, reason)
		}
	}
	counter(descXIDs, float64(a.xids))
	if unused := a.unused(); unused >= 0 {
		gauge(descUnused, unused.Seconds())
		if a.idle {
			gauge(descIdle, 1, a.idleReason())
		}
	}
	return out
}
