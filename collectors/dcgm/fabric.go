//go:build linux && cgo

package dcgm

import (
	"strconv"
	"strings"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// linkID packs a link as dcgm_link_t does since DCGM 4.3: the owner's kind in the lowest byte, the link number in the
// next two, the owner in the highest.
func linkID(owner entity, number int) uint32 {
	return uint32(owner.kind)&0xff | uint32(number)&0xffff<<8 | owner.id<<24
}

// linksSince is the first version whose link IDs contain the owner.
var linksSince = [2]int{4, 3}

// linkStates lists the links of all GPUs and switches.
func (d *discovery) linkStates() []links {
	if version, err := d.engine.version(); err == nil && older(shortVersion(version), linksSince) {
		d.o.Log.Warn("skipping NVLinks: DCGM before 4.3 reuses link IDs across GPUs; upgrade nv-hostengine",
			zap.String("version", shortVersion(version)))
		return nil
	}
	all, err := d.engine.linkStates()
	if err != nil {
		d.without(kindLink, err)
		return nil
	}
	return all
}

// older reports whether a version "4.2.3" is before another. It returns false for a malformed version.
func older(version string, than [2]int) bool {
	parts := strings.Split(version, ".")
	if len(parts) < 2 {
		return false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	if err1 != nil || err2 != nil {
		return false
	}
	return major < than[0] || major == than[0] && minor < than[1]
}

// links adds the links that are up to the node with their owners, as dcgm-exporter does. A rescan notices links that go
// up or down later.
func (d *discovery) links(n *node, all []links) {
	owners := map[entity]collector.Device{}
	for i, e := range n.entities {
		owners[e] = n.devices[i]
	}
	for _, l := range all {
		owner, known := owners[l.owner]
		if !known {
			continue
		}
		for number, state := range l.states {
			if state == linkUp {
				n.addDevice(collector.LinkOf(owner, number), entity{kindLink, linkID(l.owner, number)})
			}
		}
	}
}

// switches adds the NVSwitches, named by their numbers.
func (d *discovery) switches(n *node) {
	if !d.wants(field.Switch, field.Link) {
		return
	}
	ids, err := d.engine.entities(kindSwitch, false)
	if err != nil {
		d.without(kindSwitch, err)
		return
	}
	facts := d.globalFacts()
	for _, id := range ids {
		name := "nvswitch" + strconv.FormatUint(uint64(id), 10)
		n.addDevice(collector.Device{ID: name, Level: field.Switch, Labels: []collector.Label{{Name: "nvswitch", Value: name}}, Facts: facts}, entity{kindSwitch, id})
	}
}

// cpus adds NVIDIA's CPUs and, if the list needs them, their cores, which are numbered through the node.
func (d *discovery) cpus(n *node) {
	if !d.wants(field.CPU, field.Core) {
		return
	}
	all, err := d.engine.cpus()
	if err != nil {
		d.without(kindCPU, err)
		return
	}
	facts, cores := d.globalFacts(), d.wants(field.Core)
	for _, c := range all {
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

// adapters adds the ConnectX network adapters, which DCGM lists if it reads switches through NVSDM.
func (d *discovery) adapters(n *node) {
	if !d.wants(field.ConnectX) {
		return
	}
	ids, err := d.engine.entities(kindConnectX, false)
	if err != nil {
		d.without(kindConnectX, err)
		return
	}
	facts := d.globalFacts()
	for _, id := range ids {
		number := strconv.FormatUint(uint64(id), 10)
		n.addDevice(collector.Device{ID: "connectx" + number, Level: field.ConnectX, Labels: []collector.Label{{Name: "connectx", Value: number}}, Facts: facts}, entity{kindConnectX, id})
	}
}
