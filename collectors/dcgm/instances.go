//go:build linux && cgo

package dcgm

import (
	"cmp"
	"slices"
	"strings"

	"warpgauge/pkg/collector"
)

// instances adds the MIG instances of GPUs. A GPU instance with one compute instance, the usual case, is one device;
// several compute instances are additional devices, as in collectors/nvml.
func (d *discovery) instances(n *node) {
	all, err := d.engine.hierarchy()
	if err != nil {
		d.without(kindInstance, err)
		return
	}
	gpus := map[entity]int{}
	n.computes = map[entity]int{}
	for i, e := range n.entities {
		gpus[e] = i
	}
	slices.SortStableFunc(all, func(a, b migEntity) int {
		return cmp.Or(cmp.Compare(a.gpuIndex, b.gpuIndex), cmp.Compare(a.instance, b.instance), cmp.Compare(a.compute, b.compute))
	})
	profiles, uuids := d.profiles(all), d.migUUIDs(all)
	for _, m := range all {
		at, known := gpus[m.parent]
		if m.entity.kind != kindInstance || !known {
			continue
		}
		whole := collector.InstanceOf(n.devices[at], int(m.instance), profiles[m.entity])
		parts := slices.DeleteFunc(slices.Clone(all), func(c migEntity) bool { return c.entity.kind != kindCompute || c.parent != m.entity })
		if len(parts) == 1 {
			whole.Instance.UUID = uuids[parts[0].entity]
		}
		if !n.addDevice(whole, m.entity) {
			continue
		}
		if len(parts) < 2 {
			for _, c := range parts {
				n.computes[c.entity] = len(n.devices) - 1
			}
			continue
		}
		for _, c := range parts {
			part := collector.ComputeInstanceOf(whole, int(c.compute))
			part.Instance.UUID = uuids[c.entity]
			n.addDevice(part, c.entity)
		}
	}
}

// profiles returns the profile names of the GPU instances: "1g.10gb".
func (d *discovery) profiles(all []migEntity) map[entity]string {
	var entities []entity
	for _, m := range all {
		if m.entity.kind == kindInstance {
			entities = append(entities, m.entity)
		}
	}
	out := map[entity]string{}
	names, err := d.engine.texts(entities, []uint16{fieldName})
	if err != nil {
		d.without(kindInstance, err)
		return out
	}
	for i, e := range entities {
		out[e] = present(names[i])
	}
	return out
}

// migUUIDs returns the UUIDs of the MIG devices by compute instance. Kubernetes identifies MIG devices by these UUIDs.
func (d *discovery) migUUIDs(all []migEntity) map[entity]string {
	var entities []entity
	for _, m := range all {
		if m.entity.kind == kindCompute {
			entities = append(entities, m.entity)
		}
	}
	out := map[entity]string{}
	uuids, err := d.engine.texts(entities, []uint16{fieldUUID})
	if err != nil {
		d.without(kindCompute, err)
		return out
	}
	for i, e := range entities {
		if strings.HasPrefix(uuids[i], "MIG-") { // not the GPU's UUID or a blank
			out[e] = uuids[i]
		}
	}
	return out
}
