package owner

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// metrics are the Keeper's own metrics.
type metrics struct {
	keeper   *Keeper
	builds   prometheus.Counter
	duration prometheus.Summary
}

func newMetrics(k *Keeper, r prometheus.Registerer) *metrics {
	m := &metrics{
		keeper:   k,
		builds:   prometheus.NewCounter(prometheus.CounterOpts{Name: "warpgauge_owner_table_builds_total", Help: "Times that the table of who uses which device was rebuilt: an answer of the kubelet, the API server or the job directory has changed, or the devices have."}),
		duration: prometheus.NewSummary(prometheus.SummaryOpts{Name: "warpgauge_owner_table_build_duration_seconds", Help: "Time to make the table of owners, which is done in the background."}),
	}
	if r != nil {
		r.MustRegister(m, m.builds, m.duration)
	}
	return m
}

// Labels of a device equal the labels of its series without -o. Labels of a pod differ from the labels of scrape
// targets, so honorLabels does not change them.
var (
	deviceLabels = []string{"gpu", "UUID", "GPU_I_ID", "GPU_CI_ID"}

	descOwner = prometheus.NewDesc("warpgauge_device_owner",
		"1 for each user of a device: the container that the kubelet has given the device or one of its shares, or the batch job. Join it with the device's series.",
		append(append([]string{}, deviceLabels...), "owner_namespace", "owner_pod", "pod_uid", "owner_container", "vgpu", "resource", "dra_claim_name", "dra_claim_namespace", "hpc_job"), nil)
	descOwners = prometheus.NewDesc("warpgauge_device_owners",
		"How many containers and batch jobs a device has been given to. More than one: it is shared; more than 256: no series names them. Absent until all clients have answered once.", deviceLabels, nil)
	descVersion = prometheus.NewDesc("warpgauge_owner_table_version",
		"Grows when the labels that series have from owners change.", nil, nil)
	descUnmatched = prometheus.NewDesc("warpgauge_owner_unmatched_ids",
		"Devices of pods, as the kubelet names them, that are none of ours, so that the pod is on no series: the form of the id is not known (form), there is no such device (device), which instance of a GPU is meant cannot be told (instance), or no ResourceSlice describes the device of a claim (claim).",
		[]string{"reason"}, nil)
	descLost = prometheus.NewDesc("warpgauge_owner_pod_labels_left_out",
		"Labels of pods with devices that series do not have, or not whole: the name is one of ours (reserved), two become the same name (duplicate), the pod has too many (too_many), or the value was shortened (too_long).",
		[]string{"reason"}, nil)
)

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descOwner, descOwners, descVersion, descUnmatched, descLost} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	t := m.keeper.current()
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	gauge(descVersion, int(t.version))
	unmatched := map[string]int{reasonForm: 0, reasonDevice: 0, reasonInstance: 0, reasonClaim: 0}
	for _, u := range t.unmatched {
		unmatched[u.Reason]++
	}
	for reason, n := range unmatched {
		gauge(descUnmatched, n, reason)
	}
	for reason, n := range map[string]int{"reserved": t.losses.reserved, "duplicate": t.losses.duplicate, "too_many": t.losses.many, "too_long": t.losses.cut} {
		gauge(descLost, n, reason)
	}

	once := map[string]bool{} // labels that were sent: a registry accepts none twice
	unique := func(d *prometheus.Desc, v int, labels ...string) {
		for i := range labels {
			labels[i] = strings.ToValidUTF8(labels[i], "\uFFFD")
		}
		key := d.String() + strings.Join(labels, "\x00")
		if !once[key] {
			once[key] = true
			gauge(d, v, labels...)
		}
	}
	answered := m.keeper.answered()
	for _, d := range t.devices.all {
		if d.Level == field.Link {
			continue
		}
		if !slices.Contains(t.crowded, d.ID) {
			for _, u := range t.usesAndJobs(d) {
				unique(descOwner, 1, append(named(d), u.pod.Namespace, u.pod.Name, t.podInfos[u.pod].uid, u.container, u.replica, u.source,
					collector.LabelValue(u.claim, "dra_claim_name"), collector.LabelValue(u.claim, "dra_claim_namespace"), u.job)...)
			}
		}
		if answered { // otherwise a device with a user could count as free
			unique(descOwners, len(t.users(d)), named(d)...)
		}
	}
}

// named returns the values of deviceLabels.
func named(d *collector.Device) []string {
	return []string{d.GPU, d.UUID, d.Instance.ID, d.Instance.ComputeID}
}
