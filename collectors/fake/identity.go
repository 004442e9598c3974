package fake

import (
	"fmt"
	"strconv"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// mixBits is the finaliser of splitmix64: well-spread bits from a counter.
func mixBits(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// hash mixes a world's seed with numbers that identify an object.
func hash(seed uint64, name ...uint64) uint64 {
	h := mixBits(seed)
	for _, n := range name {
		h = mixBits(h ^ n)
	}
	return h
}

// fraction maps a hash to [0, 1).
func fraction(h uint64) float64 { return float64(h>>11) / (1 << 53) }

// Uses of hash, so that one device gets unrelated numbers.
const (
	forUUID uint64 = iota + 1
	forSerial
	forOffset
	forIdlePower
	forXID
	forErrors
	forUptime
)

// uuid looks like a GPU's UUID but is recognisable as simulated: it begins with "fa4e" and has the version digit 0,
// which no generator uses.
func uuid(seed uint64, kind, i uint64) string {
	a, b := hash(seed, forUUID, kind, i, 0), hash(seed, forUUID, kind, i, 1)
	return fmt.Sprintf("fa4e%04x-%04x-0%03x-8%03x-%012x", a&0xffff, a>>16&0xffff, a>>32&0xfff, a>>48&0xfff, b&0xffffffffffff)
}

const (
	uuidGPU uint64 = iota
	uuidSwitch
	uuidInstance
)

// pciBusID is in DCGM's form, with an eight-digit domain. The first eight boards have a DGX's addresses, the others
// follow in further domains.
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

func cpuDevice(i int) collector.Device {
	n := strconv.Itoa(i)
	return collector.Device{ID: "CPU-" + n, Level: field.CPU, Labels: []collector.Label{{Name: "cpu", Value: n}}, Model: "Grace" + modelSuffix}
}

// coreDevice returns core n of a CPU; cores are numbered through the node.
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
