package owner

import (
	"slices"

	"warpgauge/pkg/collector"
)

// Describe says in words who uses a device: "pod ml/train-0, container main (share
// 3, nvidia.com/gpu.shared)", "job 4711". Empty if nobody does.
func (k *Keeper) Describe(d *collector.Device) []string {
	t := k.current()
	var out []string
	for _, u := range t.usesOf(d) {
		out = append(out, u.String())
	}
	for _, job := range t.jobs[d.ID] {
		out = append(out, "job "+job)
	}
	return out
}

// Unmatched returns the ids of the kubelet that name no device, sorted.
func (k *Keeper) Unmatched() []Unmatched { return slices.Clone(k.current().unmatched) }

// String says who the use is of.
func (u *use) String() string {
	out := "pod " + u.pod.Namespace + "/" + u.pod.Name + ", container " + u.container + " ("
	if u.replica != "" {
		out += "share " + u.replica + ", "
	}
	out += u.source
	if claim := u.claimLabel("dra_claim_name"); claim != "" {
		out += ", claim " + u.claimLabel("dra_claim_namespace") + "/" + claim
	}
	return out + ")"
}
