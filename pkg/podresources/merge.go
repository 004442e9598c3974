package podresources

import (
	"cmp"
	"slices"
)

// fold sorts s and joins neighbours that compare equal.
func fold[T any](s []T, compare func(a, b T) int, join func(into *T, from T)) []T {
	slices.SortStableFunc(s, compare)
	out := s[:0]
	for _, e := range s {
		if n := len(out); n > 0 && compare(out[n-1], e) == 0 {
			join(&out[n-1], e)
			continue
		}
		out = append(out, e)
	}
	clear(s[len(out):]) // lets go of what was joined
	return fit(out)
}

// set sorts s and drops repeated elements.
func set[T cmp.Ordered](s []T) []T {
	slices.Sort(s)
	return fit(slices.Compact(s))
}

// fit returns s in memory of its size where it would keep twice as much: it may
// stay for days.
func fit[T any](s []T) []T {
	if 2*len(s) < cap(s) {
		return slices.Clip(slices.Clone(s))
	}
	return s
}

func comparePods(a, b Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// mergePods makes what a Snapshot promises of pods: sorted, each once. It uses
// the memory of what it is given.
func mergePods(pods []Pod) []Pod {
	pods = fold(pods, comparePods, func(into *Pod, from Pod) {
		into.Containers = append(into.Containers, from.Containers...)
	})
	for i := range pods {
		pods[i].Containers = mergeContainers(pods[i].Containers)
	}
	return pods
}

func mergeContainers(containers []Container) []Container {
	containers = fold(containers, func(a, b Container) int { return cmp.Compare(a.Name, b.Name) }, func(into *Container, from Container) {
		into.Devices = append(into.Devices, from.Devices...)
		into.Claims = append(into.Claims, from.Claims...)
	})
	for i := range containers {
		c := &containers[i]
		c.Devices, c.Claims = mergeDevices(c.Devices), mergeClaims(c.Claims)
	}
	return containers
}

func compareDevices(a, b Devices) int { return cmp.Compare(a.Resource, b.Resource) }

func mergeDevices(devices []Devices) []Devices {
	devices = fold(devices, compareDevices, func(into *Devices, from Devices) {
		into.IDs = append(into.IDs, from.IDs...)
	})
	for i := range devices {
		devices[i].IDs = set(devices[i].IDs)
	}
	return devices
}

func compareClaims(a, b Claim) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Driver, b.Driver),
		cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Device, b.Device), cmp.Compare(a.ShareID, b.ShareID))
}

func mergeClaims(claims []Claim) []Claim {
	claims = fold(claims, compareClaims, func(into *Claim, from Claim) {
		into.CDI = append(into.CDI, from.CDI...)
	})
	for i := range claims {
		claims[i].CDI = set(claims[i].CDI)
	}
	return claims
}

func equalPods(a, b []Pod) bool {
	return slices.EqualFunc(a, b, func(a, b Pod) bool {
		return comparePods(a, b) == 0 && slices.EqualFunc(a.Containers, b.Containers, equalContainers)
	})
}

func equalContainers(a, b Container) bool {
	return a.Name == b.Name && equalDevices(a.Devices, b.Devices) &&
		slices.EqualFunc(a.Claims, b.Claims, func(a, b Claim) bool {
			return compareClaims(a, b) == 0 && slices.Equal(a.CDI, b.CDI)
		})
}

// equalDevices tells nil (not told) from empty (none).
func equalDevices(a, b []Devices) bool {
	return (a == nil) == (b == nil) && slices.EqualFunc(a, b, func(a, b Devices) bool {
		return a.Resource == b.Resource && slices.Equal(a.IDs, b.IDs)
	})
}
