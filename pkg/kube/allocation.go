package kube

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"warpgauge/pkg/field"
)

// readAnswer returns the pods with devices of GPU resources or of further ones, and the names of all pods.
func readAnswer(list *v1.ListPodResourcesResponse, further []string) (pods []Pod, listed map[PodName]bool) {
	listed = map[PodName]bool{}
	for _, p := range list.GetPodResources() {
		pod := Pod{PodName: PodName{p.GetNamespace(), p.GetName()}}
		listed[pod.PodName] = true
		for _, c := range p.GetContainers() {
			container := Container{c.GetName(), devices(c, further), claims(c)}
			if len(container.Devices)+len(container.Claims) > 0 {
				pod.Containers = append(pod.Containers, container)
			}
		}
		if len(pod.Containers) > 0 {
			slices.SortStableFunc(pod.Containers, func(a, b Container) int { return cmp.Compare(a.Name, b.Name) })
			pods = append(pods, pod)
		}
	}
	sortPods(pods)
	return pods, listed
}

func sortPods(pods []Pod) {
	slices.SortStableFunc(pods, func(a, b Pod) int { return a.PodName.Compare(b.PodName) })
}

// devices merges the entries of each resource: the kubelet makes one entry per NUMA node, in any order.
func devices(c *v1.ContainerResources, further []string) (out []Devices) {
	byResource := map[string][]string{}
	for _, d := range c.GetDevices() {
		if r := d.GetResourceName(); len(d.GetDeviceIds()) > 0 && (field.OffersGPU(r) || slices.Contains(further, r)) {
			byResource[r] = append(byResource[r], d.GetDeviceIds()...)
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(byResource)) {
		ids := byResource[resource]
		slices.Sort(ids)
		out = append(out, Devices{Resource: resource, IDs: slices.Compact(ids)})
	}
	return out
}

func claims(c *v1.ContainerResources) (out []Claim) {
	for _, d := range c.GetDynamicResources() {
		for _, r := range d.GetClaimResources() {
			out = append(out, Claim{d.GetClaimNamespace(), d.GetClaimName(), DeviceName{r.GetDriverName(), r.GetPoolName(), r.GetDeviceName()}})
		}
	}
	slices.SortFunc(out, Claim.compare)
	return slices.Compact(out)
}

// deviceKey identifies a device as the kubelet does.
type deviceKey struct{ resource, id string }

// holding is a device of a pod.
type holding struct {
	pod    PodName
	device deviceKey
}

// each calls f for each device of pods, except the devices of claims, because pods can share claims.
func each(pods []Pod, f func(holding)) {
	for _, p := range pods {
		for _, c := range p.Containers {
			for _, d := range c.Devices {
				for _, id := range d.IDs {
					f(holding{p.PodName, deviceKey{d.Resource, id}})
				}
			}
		}
	}
}

// without returns pods without the devices that drop selects, and without pods that have nothing left. It does not
// change pods.
func without(pods []Pod, drop func(holding) bool) (out []Pod) {
	for _, p := range pods {
		var containers []Container
		for _, c := range p.Containers {
			var devices []Devices
			for _, d := range c.Devices {
				ids := slices.DeleteFunc(slices.Clone(d.IDs), func(id string) bool { return drop(holding{p.PodName, deviceKey{d.Resource, id}}) })
				if len(ids) > 0 {
					devices = append(devices, Devices{Resource: d.Resource, IDs: ids})
				}
			}
			if c.Devices = devices; len(devices)+len(c.Claims) > 0 {
				containers = append(containers, c)
			}
		}
		if p.Containers = containers; len(containers) > 0 {
			out = append(out, p)
		}
	}
	return out
}

// holders determines which of several pods has a device. The kubelet gives an ID to one pod at a time, but lists a
// finished pod until it is deleted, next to the pod that now has its device: the pod that was listed later has it. Pods
// that were listed together from the start share the device, because their order is unknown.
type holders struct {
	listed map[holding]bool // in the last answer; nil: no answer yet
	former map[holding]bool // entries of listed that another pod took over
}

// assign returns pods without devices that other pods have taken over, and the holders for the next answer.
func (h holders) assign(pods []Pod) ([]Pod, holders) {
	next, fresh := holders{map[holding]bool{}, map[holding]bool{}}, map[deviceKey]PodName{}
	each(pods, func(x holding) {
		next.listed[x] = true
		if h.listed != nil && !h.listed[x] {
			fresh[x.device] = x.pod
		}
	})
	for x := range next.listed {
		if pod, taken := fresh[x.device]; h.former[x] || taken && pod != x.pod && h.listed[x] {
			next.former[x] = true
		}
	}
	if len(next.former) == 0 {
		return pods, next
	}
	return without(pods, func(x holding) bool { return next.former[x] }), next
}

// restart filters the lists of a restarted kubelet, see kubeletLimits. Devices come with their pods, because the
// kubelet reads the device manager's checkpoint before it admits the first pod: a listed pod has the listed devices,
// but an unlisted pod may still be running.
type restart struct {
	before map[PodName]bool // all pods of the last trusted list
	since  time.Time        // when the new kubelet's first list came; zero while lists are trusted
	listed map[PodName]bool // all pods of the newest list since then
	steady time.Time        // since when that list has not changed
}

// begin records that the next list comes over a new connection.
func (r *restart) begin(now time.Time) { r.since, r.listed, r.steady = now, nil, now }

// missing returns the pods in last, as published, that are not listed although they may still be running, without
// devices that pods in now have. It is empty if the list is trusted.
func (r *restart) missing(last, now []Pod, listed map[PodName]bool, at time.Time, limits kubeletLimits) []Pod {
	if r.since.IsZero() {
		r.before = listed
		return nil
	}
	if !maps.Equal(listed, r.listed) {
		r.listed, r.steady = listed, at
	}
	there, taken := map[PodName]bool{}, map[deviceKey]bool{}
	for _, p := range now {
		there[p.PodName] = true
	}
	each(now, func(x holding) { taken[x.device] = true })
	gone := slices.DeleteFunc(slices.Clone(last), func(p Pod) bool { return there[p.PodName] })
	kept := without(gone, func(x holding) bool { return taken[x.device] })
	if len(kept) == 0 || r.complete(at, limits.steady) || at.Sub(r.since) >= limits.distrust {
		r.before, r.since, r.listed = listed, time.Time{}, nil
		return nil
	}
	return kept
}

// complete reports whether the kubelet seems to have found its pods.
func (r *restart) complete(now time.Time, steady time.Duration) bool {
	common := 0
	for name := range r.listed {
		if r.before[name] {
			common++
		}
	}
	return len(r.listed) > 0 && 2*common >= len(r.before) && now.Sub(r.steady) >= steady
}
