package owner

import (
	"cmp"
	"slices"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/podmeta"
)

// use is a container's hold on a device, as the kubelet tells it: one for each
// share, and for each claim.
type use struct {
	pod       podmeta.PodName
	container string
	replica   string
	source    string            // resource name, or driver of the claim
	claim     []collector.Label // of dynamic resource allocation, by name; nil: none
}

func compareUses(a, b use) int {
	return cmp.Or(
		comparePods(a.pod, b.pod),
		cmp.Compare(a.container, b.container),
		compareReplicas(a.replica, b.replica),
		cmp.Compare(a.source, b.source),
		slices.CompareFunc(a.claim, b.claim, compareLabels),
	)
}

func comparePods(a, b podmeta.PodName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// compareReplicas puts 2 before 10.
func compareReplicas(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

func compareLabels(a, b collector.Label) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Value, b.Value))
}

func equalUses(a, b use) bool { return compareUses(a, b) == 0 }

// sameContainer reports whether all uses are of one container.
func sameContainer(uses []use) bool {
	return samePod(uses) && !slices.ContainsFunc(uses, func(u use) bool { return u.container != uses[0].container })
}

// samePod reports whether all uses are of one pod.
func samePod(uses []use) bool {
	return !slices.ContainsFunc(uses, func(u use) bool { return u.pod != uses[0].pod })
}

// perPod calls f with the uses of one pod after the other. They are sorted.
func perPod(uses []use, f func(of []use)) {
	grouped(uses, f, func(a, b use) bool { return a.pod == b.pod })
}

// perContainer calls f with the uses of one container after the other.
func perContainer(uses []use, f func(of []use)) {
	grouped(uses, f, func(a, b use) bool { return a.pod == b.pod && a.container == b.container })
}

func grouped(uses []use, f func(of []use), same func(a, b use) bool) {
	for len(uses) > 0 {
		n := 1
		for n < len(uses) && same(uses[n], uses[0]) {
			n++
		}
		f(uses[:n])
		uses = uses[n:]
	}
}

// claimLabel returns a label of the use's claim, empty if it has none.
func (u *use) claimLabel(name string) string {
	for _, l := range u.claim {
		if l.Name == name {
			return l.Value
		}
	}
	return ""
}
