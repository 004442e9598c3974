//go:build linux && cgo

package dcgm

import (
	"fmt"
	"strconv"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// linkID packs a link as dcgm_link_t does since DCGM 4.3: the owner's kind in the lowest byte, the link number in the
// next two, the owner in the highest.
func linkID(owner entity, number int) uint32 {
	return uint32(owner.kind)&0xff | uint32(number)&0xffff<<8 | owner.id<<24
}

// link is a link that is up.
type link struct {
	owner  entity
	number int
}

// linksUp lists the links that are up and that can be told apart.
func linksUp(e *engine, o Options) ([]link, error) {
	version, err := e.version()
	minor := 0
	if n, _ := fmt.Sscanf(shortVersion(version), "4.%d.", &minor); err == nil && n == 1 && minor < 3 { // whose link IDs lack the owner
		o.Log.Warn("skipping NVLinks: DCGM before 4.3 reuses link IDs across GPUs; upgrade nv-hostengine",
			zap.String("version", shortVersion(version)))
		return nil, nil
	}
	return e.linksUp()
}

// addLinks adds the links of a node's devices, as dcgm-exporter does. A rescan notices links that go up or down later.
func (d *discovery) addLinks(n *node) {
	owners := map[entity]collector.Device{}
	for i, e := range n.entities {
		owners[e] = n.devices[i]
	}
	for _, l := range d.links {
		if owner, known := owners[l.owner]; known {
			n.addDevice(collector.LinkOf(owner, l.number), entity{kindLink, linkID(l.owner, l.number)})
		}
	}
}

// addCPUs adds NVIDIA's CPUs and, if the list needs them, their cores, which are numbered through the node.
func (d *discovery) addCPUs(n *node, facts []collector.Label) {
	cores := wants(d.fields, field.Core)
	for _, c := range d.cpus {
		number := strconv.FormatUint(uint64(c.id), 10)
		socket := collector.Device{ID: "CPU-" + number, Level: field.CPU, Labels: []collector.Label{{Name: "cpu", Value: number}}, Facts: facts}
		n.addDevice(socket, entity{kindCPU, c.id})
		if !cores {
			continue
		}
		for _, core := range c.cores {
			one := socket
			one.Level, one.Parent = field.Core, socket.ID
			number := strconv.FormatUint(uint64(core), 10)
			one.Labels = append([]collector.Label{{Name: "cpucore", Value: number}}, socket.Labels...)
			one.ID = socket.ID + "/core" + number
			n.addDevice(one, entity{kindCore, core})
		}
	}
}
