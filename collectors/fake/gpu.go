package fake

import (
	"fmt"
	"maps"
	"strings"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// gpu is a board, or an instance of one, to which fields are bound.
type gpu struct {
	*board
	world *World
	index int
	count int // boards of the node
	mix   mix

	// An instance has a share of the board.
	instance  bool
	sliced    bool    // a board that has instances
	computing float64 // share of the SMs
	memory    float64 // MiB
	reserved  float64 // MiB
	idleWatts float64 // differs from board to board
	offset    float64 // shifts this device's counters, 0…1
	faulty    bool    // this board has occasional errors
}

// cell returns how the field is computed for this device, false if the device lacks it.
func (g *gpu) cell(d *field.Descriptor) (cell, bool) {
	switch {
	case d.Kind != field.Int64 && d.Kind != field.Double:
		return none()
	case !g.levels(d) || !g.supports(d.ID):
		return none()
	case d.ID == field.GPUHealth || d.ID == field.P2PStatus: // several columns each: builder.labelled
		return none()
	}
	for _, bind := range []func(*field.Descriptor) (cell, bool){
		g.identity, g.clocks, g.temperatures, g.powers, g.utilisation, g.memories, g.bus, g.errors, g.events, g.profiling, g.links,
	} {
		if c, ok := bind(d); ok {
			return c, true
		}
	}
	if g.instance || g.vendor == field.VendorAMD {
		return none() // the remaining fields need a board and NVIDIA; AMD's own fields have labels, see amd.go
	}
	return g.generic(d)
}

// levels reports whether this device has fields of d's level.
func (g *gpu) levels(d *field.Descriptor) bool {
	switch d.Level {
	case field.Instance, field.ComputeInstance:
		return !g.instance || sharedByInstances(d.ID)
	case field.GPU, field.Global:
		return !g.instance
	}
	return d.ID == fieldVGPULicense && !g.instance
}

// sharedByInstances reports whether an instance has the field: the driver reports memory and profiling metrics per
// instance.
func sharedByInstances(id field.ID) bool {
	return id >= 250 && id <= 254 || id >= 1001 && id <= 1008 || id >= 1013 && id <= 1016
}

const (
	fieldVGPULicense field.ID = 526
	fieldFan         field.ID = 191
)

// supports reports whether a board of this model has the field. IDs are from dcgm_fields.h.
func (g *gpu) supports(id field.ID) bool {
	b := g.board
	d, known := field.ByID(id)
	if !known || d.Vendor != nil && d.Vendor != b.vendor {
		return false
	}
	switch {
	case b.vendor == field.VendorAMD:
		return d.Vendor == b.vendor || amdHas(id)
	case id == 6, id >= 350 && id <= 363: // bind events, diagnostics
		return false
	case id >= 500 && id < 571: // vGPU, except the licence, which DCGM reports for every board
		return id == 500 || id == fieldVGPULicense
	case id >= 571 && id <= 577, id >= 1425 && id <= 1442, id == 1502, id == 1503: // racks, power smoothing, IMEX
		return false
	case id >= 170 && id <= 175:
		return b.fabric
	case id == fieldFan:
		return b.fan
	case id == 140 || id == 151:
		return b.memoryTemp
	case id >= 300 && id <= 346, id >= 385 && id <= 396, id == 1507:
		return b.ecc
	case id >= 285 && id <= 287, id >= 1076 && id <= 1083, id >= 1400 && id <= 1403:
		return b.c2c
	case isNVLink(id):
		return b.links > 0
	case id >= 1001 && id <= 1099:
		return b.profiling
	case id >= 203 && id <= 207 && g.sliced: // the driver reports no utilisation of a board in MIG mode
		return false
	case id == 110 || id == 111:
		return !b.consumer
	}
	return true
}

// isNVLink reports whether a field needs NVLinks.
func isNVLink(id field.ID) bool {
	switch {
	case id >= 400 && id <= 499, id >= 825 && id <= 843, id >= 879 && id <= 897,
		id == 1011, id == 1012, id >= 1040 && id <= 1075,
		id >= 1200 && id <= 1220, id >= 1404 && id <= 1419, id >= 580 && id <= 592,
		id == 64, id == 1508, id == 1509, id >= 1525 && id <= 1533:
		return true
	}
	return false
}

// amdHas reports whether the collector rocm supplies a field for an MI300X.
func amdHas(id field.ID) bool {
	switch id {
	case 4, 52, 55,
		100, 101, 102, 112, 113, 114, 115,
		140, 150, 158, 159,
		155, 156, 157, 160, 161, 162, 163, 164,
		202, 203, 204, 206, 207, 235, 236, 237, 238, 240, 241,
		250, 251, 252, 254,
		310, 311, 391, 392, 395,
		449, 843, 897,
		1001, 1005, 1011, 1012,
		1529, 1530, 1531:
		return true
	}
	return false
}

// identity returns the numeric fields that identify a board.
func (g *gpu) identity(d *field.Descriptor) (cell, bool) {
	switch d.ID {
	case 4: // GPUs of the node
		return fixed(float64(g.count))
	case 5:
		return fixed(cudaVersion)
	case 52, 55: // index, minor number
		return fixed(float64(g.index))
	case 58: // device id, vendor id
		return fixed(0x233010de)
	case 59:
		return fixed(0x16c110de)
	case 63:
		return fixed(float64(g.capability[0]<<16 | g.capability[1]))
	case 64: // bitmap of peers
		mask := 0
		for _, j := range peers(g.index, g.count) {
			mask |= 1 << (j % 8)
		}
		return fixed(float64(mask))
	case 66, 84, 94, 1403: // persistence, valid inforom, GPM, C2C powered
		return fixed(1)
	case 67: // MIG mode
		return fixed(boolean(g.sliced))
	case 69:
		return fixed(7 * boolean(g.mig))
	case 70, 71, 72, 73, 86, 87, 88, 89: // bitmaps of CPUs and memory nodes: the first half serves the first half
		return fixed(boolean(d.ID == 70 || d.ID == 86) * float64(1+g.index/4%2))
	case 83:
		return fixed(float64(hash(g.world.seed, forSerial, uint64(g.index)) & 0x7fffffff))
	case 170, 175: // fabric manager: success; summary: healthy
		return fixed(3 - 2*boolean(d.ID == 175))
	case 285:
		return fixed(10)
	case 286:
		return fixed(1023)
	case 287:
		return fixed(450e3)
	}
	return none()
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// generic returns a plausible value for any other field from its unit; the value changes if its kind does. A field
// without a unit is a flag or an error count and reads 0.
func (g *gpu) generic(d *field.Descriptor) (cell, bool) {
	c, ok := g.byUnit(d)
	low, high := c.a, c.a+c.b
	if ok && c.op < firstCounter && c.op != clock && (min(low, high) < d.Min || max(low, high) > d.Max) {
		return fixed(max(d.Min, 0))
	}
	return c, ok
}

func (g *gpu) byUnit(d *field.Descriptor) (cell, bool) {
	switch d.Unit {
	case "%":
		return linear(byLoad, 0, 100*g.mix.smActive)
	case "ratio":
		return linear(byLoad, 0, g.mix.smActive)
	case "MHz":
		return cell{op: clock, a: g.idleMHz, b: g.maxMHz, c: g.cappedMHz}, true
	case "celsius":
		return linear(byWarmth, g.idleCelsius, g.hotCelsius-g.idleCelsius)
	case "W":
		return linear(byPower, g.idleWatts, g.limitWatts-g.idleWatts)
	case "mJ", "J":
		k := perJoule(d.Unit)
		return cell{op: drawn, b: k * (g.limitWatts - g.idleWatts), c: k * g.idleWatts}, true
	}
	switch {
	case strings.HasSuffix(d.Unit, "/s"):
		return linear(byLoad, 0, perByte(d.Unit)*1e9)
	case strings.HasSuffix(d.Unit, "B") || d.Unit == "bytes":
		return linear(worked, 0, perByte(d.Unit)*1e9)
	}
	return fixed(0)
}

// texts returns the text fields of a board, by the IDs of dcgm_fields.h.
func (g *gpu) texts(d collector.Device) map[field.ID]string {
	serial := fmt.Sprintf("SIM%010d", hash(g.world.seed, forSerial, uint64(g.index))%1e10)
	out := map[field.ID]string{
		1: nvidiaDriver, 50: d.Model, 51: g.brand, 53: serial, 54: d.UUID, 57: d.PCIBusID, 85: g.vbios,
	}
	if g.vendor == field.VendorAMD {
		out[1] = amdDriver
		maps.Copy(out, g.amdTexts(d))
		return out
	}
	out[2] = nvmlVersion
	out[68] = d.UUID // in the form of CUDA_VISIBLE_DEVICES
	out[82] = g.imageVersion
	if !g.consumer {
		out[56], out[80] = "2.1", "7.16" // the power object has no version on these boards
	}
	if g.instance {
		delete(out, 53)
	}
	if g.fabric {
		out[172] = uuid(g.world.seed, uuidSwitch, 1<<32)
	}
	return out
}
