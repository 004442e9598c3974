//go:build linux && cgo

package dcgm

import (
	"cmp"
	"slices"
	"strings"

	"warpgauge/pkg/collector"
)

// addInstances adds the MIG instances of GPUs. A GPU instance with one compute instance, the usual case, is one device;
// several compute instances are additional devices, as in collectors/nvml.
func (d *discovery) addInstances(n *node) {
	gpus := map[entity]int{}
	n.computes = map[entity]int{}
	for i, e := range n.entities {
		gpus[e] = i
	}
	all := slices.Clone(d.instances)
	slices.SortStableFunc(all, func(a, b migEntity) int {
		return cmp.Or(cmp.Compare(a.gpuIndex, b.gpuIndex), cmp.Compare(a.instance, b.instance), cmp.Compare(a.compute, b.compute))
	})
	profiles := d.textsOf(kindInstance, fieldName)
	uuids := d.textsOf(kindCompute, fieldUUID) // Kubernetes identifies MIG devices by them
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

// textsOf returns a text of the instances of a kind: the profile, "1g.10gb", or the UUID, but not the GPU's.
func (d *discovery) textsOf(k entityKind, field uint16) map[entity]string {
	var entities []entity
	for _, m := range d.instances {
		if m.entity.kind == k {
			entities = append(entities, m.entity)
		}
	}
	out := map[entity]string{}
	texts, err := d.engine.texts(entities, []uint16{field})
	d.o.logUnlisted(k, err)
	for i, e := range entities[:len(texts)] {
		if text := present(texts[i]); field != fieldUUID || strings.HasPrefix(text, "MIG-") {
			out[e] = text
		}
	}
	return out
}
