package owner

import (
	"cmp"
	"slices"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/kube"
)

// use is one use of a device by a container in the kubelet's answer: one per share and one per claim. Or it is a job.
type use struct {
	pod       kube.PodName
	container string
	replica   string
	source    string            // resource name or the claim's driver
	claim     []collector.Label // labels of dynamic resource allocation, by name; nil: none
	job       string            // if set, no other member is
}

func compareUses(a, b use) int {
	return cmp.Or(
		a.pod.Compare(b.pod),
		cmp.Compare(a.container, b.container),
		cmp.Compare(len(a.replica), len(b.replica)), // 2 before 10
		cmp.Compare(a.replica, b.replica),
		cmp.Compare(a.source, b.source),
		slices.CompareFunc(a.claim, b.claim, compareLabels),
	)
}

func compareLabels(a, b collector.Label) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Value, b.Value))
}

// sameContainer reports whether all uses belong to one container.
func sameContainer(uses []use) bool {
	return samePod(uses) && !slices.ContainsFunc(uses, func(u use) bool { return u.container != uses[0].container })
}

// samePod reports whether all uses belong to one pod.
func samePod(uses []use) bool {
	return !slices.ContainsFunc(uses, func(u use) bool { return u.pod != uses[0].pod })
}

// perPod calls f with the uses of each pod in turn. uses must be sorted.
func perPod(uses []use, f func(of []use)) {
	for len(uses) > 0 {
		n := 1
		for n < len(uses) && uses[n].pod == uses[0].pod {
			n++
		}
		f(uses[:n])
		uses = uses[n:]
	}
}

// String names the user.
func (u *use) String() string {
	if u.job != "" {
		return "job " + u.job
	}
	out := "pod " + u.pod.Namespace + "/" + u.pod.Name + ", container " + u.container + " ("
	if u.replica != "" {
		out += "share " + u.replica + ", "
	}
	out += u.source
	if claim := collector.LabelValue(u.claim, "dra_claim_name"); claim != "" {
		out += ", claim " + collector.LabelValue(u.claim, "dra_claim_namespace") + "/" + claim
	}
	return out + ")"
}

// claimLabels returns the labels of a claim's device, by name.
func claimLabels(c kube.Claim, s kube.SliceDevice) []collector.Label {
	out := []collector.Label{
		{Name: "dra_claim_name", Value: c.Name},
		{Name: "dra_claim_namespace", Value: c.Namespace},
		{Name: "dra_device_name", Value: c.Device.Device},
		{Name: "dra_driver_name", Value: c.Device.Driver},
	}
	if s.Kind == kube.MIGDevice {
		out = append(out, collector.Label{Name: "dra_mig_device_uuid", Value: s.UUID}, collector.Label{Name: "dra_mig_profile", Value: s.Profile})
	}
	return append(out, collector.Label{Name: "dra_pool_name", Value: c.Device.Pool})
}
