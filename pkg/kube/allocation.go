package kube

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Bounds of what is taken from an answer of the kubelet.
const (
	longestName = 1024    // bytes of a name or id; Kubernetes' own names have 253 at most
	mostIDs     = 1 << 18 // ids and claimed devices
	mostPods    = 1 << 16 // pods, with devices or without
)

// answer is a list of the kubelet.
type answer struct {
	pods    []Pod            // as in Allocations
	listed  map[PodName]bool // all pods
	skipped int              // parts that could not be used
	example string           // the first of them, for the log
	ids     int
}

// readAnswer takes from a list what counts. The error is about a list that is too long.
func readAnswer(list *v1.ListPodResourcesResponse, keep func(resource string) bool) (*answer, error) {
	a := &answer{listed: map[PodName]bool{}}
	if n := len(list.GetPodResources()); n > mostPods {
		return nil, fmt.Errorf("read the kubelet's list: %d pods, more than %d", n, mostPods)
	}
	for _, p := range list.GetPodResources() {
		pod := Pod{PodName: PodName{p.GetNamespace(), p.GetName()}}
		a.listed[pod.PodName] = true
		for _, c := range p.GetContainers() {
			container := Container{Name: c.GetName(), Devices: a.devices(pod.PodName, c, keep), Claims: a.claims(pod.PodName, c)}
			if len(container.Devices)+len(container.Claims) > 0 && a.usable(pod.PodName, c.GetName(), container.Name) {
				pod.Containers = append(pod.Containers, container)
			}
		}
		if len(pod.Containers) > 0 && a.usable(pod.PodName, "", pod.Namespace, pod.Name) {
			slices.SortStableFunc(pod.Containers, func(a, b Container) int { return cmp.Compare(a.Name, b.Name) })
			a.pods = append(a.pods, pod)
		}
		if a.ids > mostIDs {
			return nil, fmt.Errorf("read the kubelet's list: more than %d device ids", mostIDs)
		}
	}
	sortPods(a.pods)
	return a, nil
}

func sortPods(pods []Pod) {
	slices.SortStableFunc(pods, func(a, b Pod) int { return a.PodName.Compare(b.PodName) })
}

// devices joins the entries of each resource: the kubelet makes one per NUMA node, in
// any order.
func (a *answer) devices(pod PodName, c *v1.ContainerResources, keep func(string) bool) (out []Devices) {
	byResource := map[string][]string{}
	for _, d := range c.GetDevices() {
		if !keep(d.GetResourceName()) || !a.usable(pod, c.GetName(), d.GetResourceName()) {
			continue
		}
		for _, id := range d.GetDeviceIds() {
			if a.usable(pod, c.GetName(), id) {
				byResource[d.GetResourceName()] = append(byResource[d.GetResourceName()], id)
				a.ids++
			}
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(byResource)) {
		ids := byResource[resource]
		slices.Sort(ids)
		out = append(out, Devices{Resource: resource, IDs: slices.Compact(ids)})
	}
	return out
}

func (a *answer) claims(pod PodName, c *v1.ContainerResources) (out []Claim) {
	for _, d := range c.GetDynamicResources() {
		for _, r := range d.GetClaimResources() {
			claim := Claim{d.GetClaimNamespace(), d.GetClaimName(), DeviceName{r.GetDriverName(), r.GetPoolName(), r.GetDeviceName()}}
			if a.usable(pod, c.GetName(), claim.Namespace, claim.Name, claim.Device.Driver, claim.Device.Pool, claim.Device.Device) {
				out = append(out, claim)
				a.ids++
			}
		}
	}
	slices.SortFunc(out, Claim.compare)
	return slices.CompactFunc(out, func(a, b Claim) bool { return a == b })
}

// usable reports whether all texts can be label values, and counts those that cannot.
func (a *answer) usable(pod PodName, container string, texts ...string) bool {
	bad := slices.IndexFunc(texts, func(s string) bool { return !validText(s, longestName) })
	if bad < 0 {
		return true
	}
	if a.skipped++; a.skipped == 1 {
		a.example = clip(fmt.Sprintf("a name of %d bytes (namespace %.253q, pod %.253q, container %.253q)", len(texts[bad]), pod.Namespace, pod.Name, container))
	}
	return false
}

// deviceKey names a device as the kubelet does.
type deviceKey struct{ resource, id string }

// holding is a device of a pod.
type holding struct {
	pod    PodName
	device deviceKey
}

// each calls f with each device of pods. Claims are not among them: they can be shared.
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

// without returns pods without the devices that drop names; what has nothing left is
// left out. It changes nothing in pods.
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

// holders finds out which of several pods has a device. The kubelet gives an id to one
// pod at a time, but lists a pod that has finished until the pod is deleted, next to the
// one that has got its device: the pod that came last has it. Pods that were listed
// together from the start share the device, because it is not known which has it.
type holders struct {
	listed map[holding]bool // in the last answer; nil: there was none
	former map[holding]bool // those of listed that another pod took over
}

// judge returns pods without devices that other pods have taken over, and the holders
// for the next answer.
func (h holders) judge(pods []Pod) ([]Pod, holders) {
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

// restart judges the lists of a kubelet that has restarted, see kubeletLimits. Devices
// come with their pods, because the checkpoint of the device manager is read before the
// first pod is admitted: a pod that is listed has what is listed, but one that is not
// may still be there.
type restart struct {
	before map[PodName]bool // all pods of the last list that was believed
	since  time.Time        // the first list of the new kubelet; zero while all is believed
	listed map[PodName]bool // all pods of the last list since then
	steady time.Time        // since when that is the same
}

// begin says that the next list comes over a new connection.
func (r *restart) begin(now time.Time) { r.since, r.listed, r.steady = now, nil, now }

// missing returns the pods of last, as it was published, that are not listed although
// they may still be there, without devices that pods of now have. It is empty when the
// list is believed.
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
