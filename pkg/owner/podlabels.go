package owner

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"warpgauge/pkg/collector"
)

// Bounds of what a pod's labels may cost: each is on every series of its devices.
const (
	mostPodLabels  = 64
	longestPodText = 1024 // bytes of a value
)

// losses counts labels of pods that are not told as they are.
type losses struct {
	reserved  int // the name is one of ours
	duplicate int // another label of the pod became the same name
	many      int // the pod has more than mostPodLabels
	cut       int // the value was cut
}

// reserved are names that labels of devices, fields and owners have; the series
// would say something else than the pod.
func reserved(old bool, hostname string) map[string]bool {
	out := map[string]bool{
		"gpu": true, "pci_bus_id": true, "device": true, "modelName": true,
		"GPU_I_PROFILE": true, "GPU_I_ID": true, "GPU_CI_ID": true,
		"nvlink": true, "nvswitch": true, "gpu_uuid": true, "model_name": true, "cpu": true, "cpucore": true, "connectx": true,
		"err_code": true, "err_msg": true, "le": true, "quantile": true,
		"window_size_in_ms": true, "xid": true, "clock_event": true, "health_watch": true, "health_error_code": true,
		"peer_gpu": true, "link_status": true,
		"pod_uid": true, "vgpu": true, "hpc_job": true,
		"dra_claim_name": true, "dra_claim_namespace": true, "dra_driver_name": true, "dra_pool_name": true,
		"dra_device_name": true, "dra_mig_profile": true, "dra_mig_device_uuid": true,
	}
	names := namesOf(old)
	for _, name := range []string{names.uuid, names.namespace, names.pod, names.container, hostname} {
		out[name] = true
	}
	return out
}

// podLabels returns a pod's labels under names that a page can carry, by name. Of
// two that become the same, the one that sorts first wins.
func (k *Keeper) podLabels(of map[string]string, lost *losses) []collector.Label {
	if len(of) == 0 {
		return nil
	}
	taken := make(map[string]bool, len(of))
	var out []collector.Label
	for _, key := range slices.Sorted(maps.Keys(of)) {
		value, name := of[key], labelName(key)
		switch {
		case value == "" || name == "": // to Prometheus, empty is absent
			continue
		case k.reserved[name]:
			lost.reserved++
			continue
		case taken[name]:
			lost.duplicate++
			continue
		case len(out) == mostPodLabels:
			lost.many++
			continue
		case len(value) > longestPodText:
			value = cut(value)
			lost.cut++
		}
		taken[name] = true
		out = append(out, collector.Label{Name: name, Value: value})
	}
	slices.SortFunc(out, compareLabels)
	return out
}

// labelName makes the name of a Prometheus label: what is neither letter, digit nor
// underscore becomes an underscore, and a digit does not come first.
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
	if strings.HasPrefix(name, "__") { // Prometheus keeps those for itself
		name = "_" + strings.TrimLeft(name, "_")
	}
	return name
}

// cut shortens a text to the longest that is allowed, between two characters.
func cut(s string) string {
	end := longestPodText
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}
