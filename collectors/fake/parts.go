package fake

import (
	"fmt"
	"strconv"
	"strings"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Parts of a node other than GPUs: links, NVSwitches with their ports, CPUs with their cores.

// link is one link of a board. Links count from 0.
type link struct {
	*gpu
	n int
}

func (l link) cell(d *field.Descriptor) (cell, bool) {
	foreign := l.vendor == field.VendorAMD && (d.ID < 1529 || d.ID > 1531) // ROCm reports only the throughput
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

// modelled binds the fields of one level. Fields without a model read 0 or, if only is set, are absent.
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
	for i := field.ID(0); i < 4; i++ { // low-latency packets and samples, by virtual channel
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

// mixBits is the finaliser of splitmix64: well-spread bits from a counter.
func mixBits(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// hash mixes a world's seed with the numbers that identify an object.
func hash(seed uint64, name ...uint64) uint64 {
	h := mixBits(seed)
	for _, n := range name {
		h = mixBits(h ^ n)
	}
	return h
}

// fraction maps a hash to [0, 1).
func fraction(h uint64) float64 { return float64(h>>11) / (1 << 53) }

// Purposes of a hash. One device gets unrelated numbers for different purposes.
const (
	forUUID uint64 = iota + 1
	forSerial
	forOffset
	forIdlePower
	forXID
	forErrors
	forUptime
)

// uuid returns a UUID that is recognisable as simulated: it begins with "fa4e" and has the version digit 0, which no
// generator uses.
func uuid(seed uint64, kind, i uint64) string {
	a, b := hash(seed, forUUID, kind, i, 0), hash(seed, forUUID, kind, i, 1)
	return fmt.Sprintf("fa4e%04x-%04x-0%03x-8%03x-%012x", a&0xffff, a>>16&0xffff, a>>32&0xfff, a>>48&0xfff, b&0xffffffffffff)
}

const (
	uuidGPU uint64 = iota
	uuidSwitch
	uuidInstance
)

// pciBusID returns an address in DCGM's form, with an eight-digit domain. The first eight boards have a DGX's addresses,
// further boards are in other domains.
func pciBusID(i int) string {
	buses := [8]int{0x1b, 0x43, 0x52, 0x61, 0x9d, 0xc3, 0xd1, 0xdf}
	return fmt.Sprintf("%08X:%02X:00.0", i/8, buses[i%8])
}

func gpuDevice(w *World, i int) collector.Device {
	b := w.profile.board
	d := collector.Device{
		Level:    field.GPU,
		GPU:      strconv.Itoa(i),
		PCIBusID: pciBusID(i),
		Node:     "nvidia" + strconv.Itoa(i),
		Model:    b.model + modelSuffix,
	}
	d.UUID = "GPU-" + uuid(w.seed, uuidGPU, uint64(i))
	if b.vendor == field.VendorAMD { // ROCm's form: 64 bits
		d.UUID = fmt.Sprintf("GPU-fa4e%012x", hash(w.seed, forUUID, uuidGPU, uint64(i))&0xffffffffffff)
		d.Node = "card" + strconv.Itoa(i)
	}
	d.ID = d.UUID
	return d
}

func switchDevice(w *World, i int) collector.Device {
	return collector.Device{
		ID:     "NVSWITCH-" + uuid(w.seed, uuidSwitch, uint64(i)),
		Level:  field.Switch,
		Labels: []collector.Label{{Name: "nvswitch", Value: "nvswitch" + strconv.Itoa(i)}},
		Model:  "NVSwitch" + modelSuffix,
	}
}

// coreDevice returns core n of a CPU. Core numbers are unique on the node.
func coreDevice(cpu collector.Device, n int) collector.Device {
	d := cpu
	d.Facts = nil
	d.Level = field.Core
	d.Parent = cpu.ID
	number := strconv.Itoa(n)
	d.Labels = append([]collector.Label{{Name: "cpucore", Value: number}}, cpu.Labels...)
	d.ID = cpu.ID + "/core" + number
	return d
}
