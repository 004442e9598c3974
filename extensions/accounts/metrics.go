package accounts

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/pkg/field"
)

// labels identify an account. Labels of a pod differ from those of scrape targets, as in warpgauge_device_owner.
var labels = []string{"gpu", "UUID", "owner", "owner_namespace", "owner_pod", "pod_uid", "owner_container", "hpc_job"}

func desc(name, help string, more ...string) *prometheus.Desc {
	return prometheus.NewDesc("warpgauge_owner_"+name, help, append(append([]string{}, labels...), more...), nil)
}

var (
	descEnergy = desc("energy_joules_total",
		"Energy that a board has used while the owner had it, by source (counter: differences of the board's counter; power: power times time), by how the owner's part was found (whole: it had the board alone; activity: of processes or MIG instances; slices: sizes of MIG instances, none of which was active; equal), and by what the part did (busy, idle, unknown). The sum over owners, nobody and unattributed is the board's.",
		"source", "method", "state")
	descHeld      = desc("gpu_seconds_total", "Seconds that the owner has had the board, times its part of the board.")
	descObserved  = desc("observed_seconds_total", "GPU seconds of the owner for which the utilisation is known.")
	descBusy      = desc("busy_seconds_total", "GPU seconds of the owner in which something ran, by the utilisation of each sample.")
	descTensor    = desc("tensor_seconds_total", "GPU seconds of the owner times the activity of the tensor pipe. Only if DCGM_FI_PROF_PIPE_TENSOR_ACTIVE is read.")
	descOFU       = desc("ofu_seconds_total", "GPU seconds of the owner times the activity of the tensor pipe and, in the same sample, the clock as a share of its peak. Only for models whose peak is known.")
	descMemory    = desc("memory_byte_seconds_total", "Memory in use by the owner, times seconds.")
	descPeak      = desc("memory_peak_bytes", "Largest memory in use by the owner.")
	descThrottled = desc("throttled_seconds_total", "GPU seconds of the owner in which the clocks were held down, by reason.", "clock_event")
	descXIDs      = desc("xids_total", "XIDs of the board while the owner had it.")
	descUnused    = desc("unused_seconds", "Seconds since something ran last in the owner's part of the board, or since the owner came. Absent once it has left.")
	descDropped   = prometheus.NewDesc("warpgauge_owners_dropped_total", "Owners that have left and are on the page no more, although they were not scraped twice, because others came after them.", nil, nil)
)

// Describe implements prometheus.Collector.
func (l *Ledger) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descEnergy, descHeld, descObserved, descBusy, descTensor, descOFU, descMemory, descPeak, descThrottled, descXIDs, descUnused, descDropped} {
		to <- d
	}
}

// Collect implements prometheus.Collector. It counts as a scrape.
func (l *Ledger) Collect(to chan<- prometheus.Metric) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.view != nil {
		l.refresh(now, false)
	}
	for _, b := range l.boards {
		b.commit(now.Add(-lag).UnixNano())
		b.hold(now.UnixNano())
	}
	for _, a := range l.accounts {
		if a.board != nil {
			a.send(to, now)
		}
		if a.left > 0 {
			a.scrapes++
		}
	}
	to <- prometheus.MustNewConstMetric(descDropped, prometheus.CounterValue, float64(l.dropped))
}

func (a *account) send(to chan<- prometheus.Metric, now time.Time) {
	values := []string{a.board.device.GPU, a.board.device.UUID, a.owner.Kind, a.owner.Namespace, a.owner.Pod, a.owner.UID, a.owner.Container, a.owner.Job}
	for i := range values {
		values[i] = strings.ToValidUTF8(values[i], "\uFFFD")
	}
	one := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, more ...string) {
		to <- prometheus.MustNewConstMetric(d, kind, v, append(append([]string{}, values...), more...)...)
	}
	for source := range a.energy {
		for method := range a.energy[source] {
			for state, e := range a.energy[source][method] {
				if e > 0 {
					one(descEnergy, prometheus.CounterValue, float64(e)/1e6, sourceNames[source], methodNames[method], stateNames[state])
				}
			}
		}
	}
	one(descHeld, prometheus.CounterValue, a.held)
	one(descObserved, prometheus.CounterValue, a.observed)
	one(descBusy, prometheus.CounterValue, a.busy)
	if a.profiled > 0 {
		one(descTensor, prometheus.CounterValue, a.tensor)
	}
	if a.clocked > 0 {
		one(descOFU, prometheus.CounterValue, a.ofu)
	}
	one(descMemory, prometheus.CounterValue, a.memory)
	one(descPeak, prometheus.GaugeValue, a.peak)
	for bit, seconds := range a.throttled {
		if reason, known := field.ClockReason(bit); known && seconds > 0 {
			one(descThrottled, prometheus.CounterValue, seconds, reason)
		}
	}
	one(descXIDs, prometheus.CounterValue, float64(a.xids))
	if a.left == 0 && a.owner.Kind != KindUnattributed {
		one(descUnused, prometheus.GaugeValue, now.Sub(time.Unix(0, max(a.used, a.came))).Seconds())
	}
}
