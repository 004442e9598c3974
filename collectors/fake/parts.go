package fake

import (
	"strconv"
	"strings"

	"warpgauge/pkg/field"
)

// Parts of a node to which fields are bound: links, NVSwitches with their ports, CPUs with their cores.

// link is one link of a board, from 0.
type link struct {
	*gpu
	n int
}

func (l link) cell(d *field.Descriptor) (cell, bool) {
	foreign := l.vendor == field.VendorAMD && (d.ID < 1529 || d.ID > 1531) // ROCm knows the throughput only
	labelled := d.ID >= field.NVLinkPackets && d.ID <= field.NVLinkFEC     // of NVLink 5
	switch {
	case d.Level != field.Link, strings.Contains(d.Name, "NVSWITCH"), labelled, foreign:
		return cell{}, false
	case d.ID == 1508: // state: active
		return fixed(1), true
	}
	return l.traffic(d, 1, l.n == 0), true
}

// laneOf returns the lane in names such as DCGM_FI_DEV_NVLINK_BANDWIDTH_L7 and DCGM_FI_PROF_NVLINK_L7_TX_BYTES.
func laneOf(name string) (int, bool) {
	for part := range strings.SplitSeq(name, "_") {
		if digits, ok := strings.CutPrefix(part, "L"); ok {
			if n, err := strconv.Atoi(digits); err == nil {
				return n, true
			}
		}
	}
	return 0, false
}

// modelled binds the fields of one level. Some of them are modelled; the others read 0 or, if only is set, are absent.
type modelled struct {
	level  field.Level
	name   string // part of the fields' names
	only   bool
	models map[field.ID]cell
}

func (p modelled) cell(d *field.Descriptor) (cell, bool) {
	c, is := p.models[d.ID]
	return c, d.Level == p.level && strings.Contains(d.Name, p.name) && (is || !p.only)
}

// portBytes is a port's traffic at full load, bytes/s per direction.
const portBytes = 25e9 * 0.35

func nvswitch(index, ports int) modelled {
	traffic := linear(worked, 0, portBytes*float64(ports)).scaled()
	return modelled{level: field.Switch, models: map[field.ID]cell{
		701: fixed(850), 702: fixed(210), 703: fixed(210), 704: fixed(210), // mV, mA
		705: linear(byPower, 62, 48), 706: linear(byPower, 21, 14), 707: fixed(6),
		858: linear(byWarmth, 36, 22), 859: fixed(108), 860: fixed(116),
		861: traffic, 862: traffic, 863: fixed(float64(index)), 867: fixed(float64(0x05 + index)),
	}}
}

func nvswitchPort(port int) modelled {
	out := modelled{level: field.Link, name: "NVSWITCH_LINK", models: map[field.ID]cell{
		780: linear(worked, 0, portBytes).scaled(), 781: linear(worked, 0, portBytes).scaled(),
		865: fixed(float64(port)), 870: fixed(2), 873: fixed(0x1b), 876: fixed(float64(port % 18)), // 2: active
	}}
	for i := field.ID(0); i < 4; i++ { // packets of low latency and samples, by virtual channel
		out.models[789+i], out.models[805+i] = linear(worked, 0, portBytes/256), linear(worked, 0, portBytes/256)
	}
	return out
}

// cpu is a Grace CPU.
func cpu() modelled {
	return modelled{level: field.CPU, only: true, models: map[field.ID]cell{
		1110: linear(byWarmth, 38, 30), 1111: fixed(95), 1112: fixed(105),
		1130: linear(byPower, 55, 190), 1131: fixed(300), 1132: linear(byPower, 12, 6), 1133: linear(byPower, 260, 2100),
	}}
}

func core(m mix) modelled {
	return modelled{level: field.Core, only: true, models: map[field.ID]cell{
		1100: linear(byLoad, 0.01, m.hostCPU+m.hostCPUSystem+m.nice), 1104: fixed(0.002),
		1101: linear(byLoad, 0, m.hostCPU), 1102: linear(byLoad, 0, m.nice), 1103: linear(byLoad, 0.008, m.hostCPUSystem),
		1120: {op: pstate, a: 1107e3, b: 3375e3},
	}}
}
