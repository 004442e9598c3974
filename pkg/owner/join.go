package owner

import (
	"cmp"
	"slices"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/podmeta"
	"warpgauge/pkg/podresources"
)

// Unmatched is an id of the kubelet that names no device.
type Unmatched struct {
	Namespace, Pod, Container string
	Resource                  string // or driver of the claim
	ID                        string // or pool/device of the claim
	Reason                    string // form, device, instance or claim
}

// joined is what the kubelet said, by device.
type joined struct {
	uses      map[string][]use // by id of the device; sorted, each once
	unmatched []Unmatched
}

// join finds the devices that pods have.
func (k *Keeper) join(n *devices, in inputs) joined {
	j := joined{uses: map[string][]use{}}
	var described map[podmeta.DeviceName]podmeta.Device
	if in.meta != nil {
		described = in.meta.Slices
	}
	for _, p := range in.pods.Pods {
		if k.o.Ignore != nil && k.o.Ignore(p.Namespace, p.Name) {
			continue
		}
		for _, c := range p.Containers {
			u := use{pod: podmeta.PodName{Namespace: p.Namespace, Name: p.Name}, container: c.Name}
			for _, d := range c.Devices {
				k.joinDevices(&j, n, u, d)
			}
			for i := range c.Claims {
				if k.o.Claims && KeepDriver(c.Claims[i].Driver) {
					j.joinClaim(n, u, &c.Claims[i], described)
				}
			}
		}
	}
	for id, uses := range j.uses {
		slices.SortFunc(uses, compareUses)
		j.uses[id] = slices.CompactFunc(uses, equalUses)
	}
	sortUnmatched(j.unmatched)
	return j
}

func (k *Keeper) joinDevices(j *joined, n *devices, u use, d podresources.Devices) {
	u.source = d.Resource
	for _, text := range d.IDs {
		id, ok := ParseID(text)
		if !ok {
			j.miss(u, text, reasonForm)
			continue
		}
		found, reason := n.find(d.Resource, id)
		if known := n.byID[k.instances[id.Name]]; len(found) == 0 && id.Form == FormMIG && known != nil {
			found = append(found, known)
		}
		if len(found) == 0 {
			j.miss(u, text, reason)
		}
		u.replica = id.Replica
		for _, device := range found {
			j.add(device, u)
		}
	}
}

func (j *joined) joinClaim(n *devices, u use, c *podresources.Claim, described map[podmeta.DeviceName]podmeta.Device) {
	u.source = c.Driver
	text := c.Pool + "/" + c.Device
	s, known := described[podmeta.DeviceName{Driver: c.Driver, Pool: c.Pool, Device: c.Device}]
	if !known {
		j.miss(u, text, reasonClaim)
		return
	}
	device, reason := n.claimed(c.Driver, c.Device, s)
	if device == nil {
		j.miss(u, text, reason)
		return
	}
	u.claim = claimLabels(c, s)
	j.add(device, u)
}

func (j *joined) add(d *collector.Device, u use) { j.uses[d.ID] = append(j.uses[d.ID], u) }

func (j *joined) miss(u use, id, reason string) {
	j.unmatched = append(j.unmatched, Unmatched{
		Namespace: u.pod.Namespace, Pod: u.pod.Name, Container: u.container, Resource: u.source, ID: id, Reason: reason,
	})
}

// mostInstances bounds the memory of MIG UUIDs: more than a node has in years.
const mostInstances = 4096

// remember keeps which instance a MIG UUID meant: a collector that takes over may
// not be able to tell. Call it with mu held.
func (k *Keeper) remember(n *devices) {
	if len(k.instances)+len(n.byMIG) > mostInstances {
		clear(k.instances)
	}
	for uuid, d := range n.byMIG {
		k.instances[uuid] = d.ID
	}
}

// jobs returns the jobs of a device: a file that is named by a GPU's index is
// valid for the GPU and its links, one that names an instance for the instance.
func jobs(d *collector.Device, files map[string][]string) []string {
	switch {
	case len(files) == 0 || d.GPU == "":
		return nil
	case isInstance(d):
		return files[d.GPU+"."+d.InstanceID]
	}
	return files[d.GPU]
}

// sortUnmatched makes the order that of the kubelet's answer no longer matter.
func sortUnmatched(list []Unmatched) {
	slices.SortFunc(list, func(a, b Unmatched) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Container, b.Container), cmp.Compare(a.Resource, b.Resource))
	})
}
