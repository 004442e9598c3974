package owner

import (
	"maps"
	"slices"
	"strings"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/kube"
	"warpgauge/pkg/view"
)

// names are the names of the owner labels.
type names struct{ uuid, namespace, pod, container string }

// namesOf returns the current label names, or the names before dcgm-exporter 2.0 if old is set.
func namesOf(old bool) names {
	if old {
		return names{"uuid", "pod_namespace", "pod_name", "container_name"}
	}
	return names{"UUID", "namespace", "pod", "container"}
}

// renderer makes labels of uses.
type renderer struct {
	names     names
	podInfos  map[kube.PodName]podInfo
	about     map[string][]collector.Label // by job ID
	jobLabels []string                     // the job labels on all series, without job_
	uid       bool                         // label pod_uid
	virtual   bool
}

// pods returns the pods and containers of a device as its series show them.
func (r *renderer) pods(uses []use) []view.Owner {
	switch {
	case len(uses) == 0:
		return nil
	case r.virtual:
		out := make([]view.Owner, 0, len(uses))
		for i := range uses {
			out = append(out, r.owner(uses[i:i+1], r.uid))
		}
		return out
	case !samePod(uses):
		return nil // shared by several pods
	}
	return []view.Owner{r.owner(uses, r.uid)}
}

// owner returns one user for all uses, which must belong to one pod. It has only labels that all uses share.
func (r *renderer) owner(uses []use, uid bool) view.Owner {
	u := &uses[0]
	labels := make([]collector.Label, 0, 5+len(u.claim))
	if u.container != "" && sameContainer(uses) {
		labels = append(labels, collector.Label{Name: r.names.container, Value: u.container})
	}
	labels = append(labels, collector.Label{Name: r.names.namespace, Value: u.pod.Namespace}, collector.Label{Name: r.names.pod, Value: u.pod.Name})
	if known := r.podInfos[u.pod].uid; uid && known != "" {
		labels = append(labels, collector.Label{Name: "pod_uid", Value: known})
	}
	if r.virtual && u.replica != "" && !slices.ContainsFunc(uses, func(o use) bool { return o.replica != u.replica }) {
		labels = append(labels, collector.Label{Name: "vgpu", Value: u.replica})
	}
	for _, l := range u.claim {
		if !slices.ContainsFunc(uses, func(o use) bool { return !slices.Contains(o.claim, l) }) {
			labels = append(labels, l)
		}
	}
	slices.SortFunc(labels, compareLabels)
	return view.Owner{PodLabels: r.podInfos[u.pod].labels, Labels: labels, Facts: r.podInfos[u.pod].facts}
}

// withJobs copies each owner for each job; without owners it returns the jobs.
func (r *renderer) withJobs(owners []view.Owner, jobs []string) []view.Owner {
	if len(jobs) == 0 {
		return owners
	}
	if len(owners) == 0 {
		owners = []view.Owner{{}}
	}
	out := make([]view.Owner, 0, len(owners)*len(jobs))
	for _, o := range owners {
		for _, job := range jobs {
			labels := append(slices.Clone(o.Labels), collector.Label{Name: "hpc_job", Value: job})
			for _, l := range r.about[job] {
				if name, ok := strings.CutPrefix(l.Name, jobPrefix); ok && slices.Contains(r.jobLabels, name) {
					labels = append(labels, l)
				}
			}
			slices.SortFunc(labels, compareLabels)
			out = append(out, view.Owner{PodLabels: o.PodLabels, Labels: labels, Facts: slices.Concat(o.Facts, r.about[job])})
		}
	}
	return out
}

// Limits on a pod's labels, because each is on every series of its devices.
const (
	maxPodLabels = 64
	maxPodText   = 1024 // bytes of a value
)

// losses counts labels of pods that are dropped or changed.
type losses struct {
	reserved  int // the name is reserved
	duplicate int // another label of the pod has the same name
	many      int // the pod has more than maxPodLabels
	cut       int // the value was cut
}

// reservedLabels returns the label names of devices, fields and owners, which a pod's labels must not override.
func reservedLabels(old bool, hostname string) map[string]bool {
	out := map[string]bool{
		"gpu": true, "pci_bus_id": true, "device": true, "modelName": true,
		"GPU_I_PROFILE": true, "GPU_I_ID": true, "GPU_CI_ID": true,
		"nvlink": true, "nvswitch": true, "gpu_uuid": true, "model_name": true, "cpu": true, "cpucore": true, "connectx": true,
		"err_code": true, "err_msg": true, "le": true, "quantile": true,
		"window_size_in_ms": true, "xid": true, "clock_event": true, "health_watch": true, "health_error_code": true,
		"peer_gpu": true, "link_status": true,
		"pod_uid": true, "vgpu": true, "hpc_job": true, "job_user": true, "job_partition": true,
		"dra_claim_name": true, "dra_claim_namespace": true, "dra_driver_name": true, "dra_pool_name": true,
		"dra_device_name": true, "dra_mig_profile": true, "dra_mig_device_uuid": true,
	}
	names := namesOf(old)
	for _, name := range []string{names.uuid, names.namespace, names.pod, names.container, hostname} {
		out[name] = true
	}
	return out
}

// podLabels returns a pod's labels with valid names, sorted by name. If two labels get the same name, the one whose
// original name sorts first wins.
func podLabels(of map[string]string, reserved map[string]bool, lost *losses) []collector.Label {
	taken := make(map[string]bool, len(of))
	var out []collector.Label
	for _, key := range slices.Sorted(maps.Keys(of)) {
		value, name := of[key], labelName(key)
		switch {
		case value == "" || name == "": // Prometheus treats empty as absent
			continue
		case reserved[name]:
			lost.reserved++
			continue
		case taken[name]:
			lost.duplicate++
			continue
		case len(out) == maxPodLabels:
			lost.many++
			continue
		case len(value) > maxPodText:
			value = strings.ToValidUTF8(value[:maxPodText], "")
			lost.cut++
		}
		taken[name] = true
		out = append(out, collector.Label{Name: name, Value: value})
	}
	slices.SortFunc(out, compareLabels)
	return out
}

// labelName returns a valid Prometheus label name: it replaces every character except letters, digits and underscores
// by an underscore, and prevents a leading digit.
func labelName(key string) string {
	if key == "" {
		return ""
	}
	name := strings.Map(func(r rune) rune {
		if r|0x20 >= 'a' && r|0x20 <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, key)
	if name[0] >= '0' && name[0] <= '9' {
		name = "_" + name
	}
	if strings.HasPrefix(name, "__") { // Prometheus reserves those
		name = "_" + strings.TrimLeft(name, "_")
	}
	return name
}
