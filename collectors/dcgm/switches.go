//go:build linux && cgo

package dcgm

import (
	"strconv"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// switches adds the NVSwitches, each under its own number.
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
		n.add(collector.Device{ID: name, Level: field.Switch, Switch: name, Facts: facts}, entity{kindSwitch, id})
	}
}

// cpus adds NVIDIA's CPUs and, if asked for, their cores, which are numbered
// through the node.
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
		socket := collector.Device{ID: "CPU-" + number, Level: field.CPU, CPU: number, Facts: facts}
		n.add(socket, entity{kindCPU, c.id})
		if !cores {
			continue
		}
		for _, core := range c.cores {
			one := socket
			one.Level, one.Parent = field.Core, socket.ID
			one.Core = strconv.FormatUint(uint64(core), 10)
			one.ID = socket.ID + "/core" + one.Core
			n.add(one, entity{kindCore, core})
		}
	}
}

// adapters adds the ConnectX network adapters, which DCGM sees where it reads
// switches through NVSDM.
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
		n.add(collector.Device{ID: "connectx" + number, Level: field.ConnectX, ConnectX: number, Facts: facts}, entity{kindConnectX, id})
	}
}
