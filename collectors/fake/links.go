package fake

import (
	"strconv"
	"strings"

	"warpgauge/pkg/field"
)

// Fields of NVLink and XGMI: of a board over all its links, of a board by lane, and of a link.

// link is one link of a board, to which fields are bound.
type link struct {
	*gpu
	n int // from 0
}

func (l link) cell(d *field.Descriptor) (cell, bool) {
	g := l.gpu
	if d.Level != field.Link || d.Kind != field.Int64 && d.Kind != field.Double || strings.Contains(d.Name, "NVSWITCH") {
		return none()
	}
	if d.ID >= field.NVLinkPackets && d.ID <= field.NVLinkFEC { // by labels, of NVLink 5
		return none()
	}
	if g.vendor == field.VendorAMD && !amdHas(d.ID) {
		return none()
	}
	if d.ID == 1508 { // state: active
		return fixed(1)
	}
	return g.traffic(d, 1, l.n == 0)
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

// nvswitch is a switch, or one port of it, to which fields are bound.
type nvswitch struct {
	index int
	ports int // of the switch
	port  int // from 0; −1 for the switch itself
}

// portBytes is a port's traffic at full load, bytes/s per direction.
const portBytes = 25e9 * 0.35

// cell returns how the field is computed, false if a switch lacks it.
func (n *nvswitch) cell(d *field.Descriptor) (cell, bool) {
	if d.Kind != field.Int64 && d.Kind != field.Double {
		return none()
	}
	if n.port >= 0 {
		if d.Level != field.Link || !strings.Contains(d.Name, "NVSWITCH_LINK") {
			return none()
		}
		return n.portCell(d)
	}
	if d.Level != field.Switch {
		return none()
	}
	return n.switchCell(d)
}

func (n *nvswitch) switchCell(d *field.Descriptor) (cell, bool) {
	switch d.ID {
	case 701: // mV
		return fixed(850)
	case 702, 703, 704:
		return fixed(210)
	case 705:
		return linear(byPower, 62, 48)
	case 706:
		return linear(byPower, 21, 14)
	case 707:
		return fixed(6)
	case 858:
		return linear(byWarmth, 36, 22)
	case 859:
		return fixed(108)
	case 860:
		return fixed(116)
	case 861, 862:
		return linear(worked, 0, perByte(d.Unit)*portBytes*float64(n.ports))
	case 863:
		return fixed(float64(n.index))
	case 867:
		return fixed(float64(0x05 + n.index))
	}
	return fixed(0) // SXIDs, reset required, the rest of the PCI address
}

func (n *nvswitch) portCell(d *field.Descriptor) (cell, bool) {
	switch d.ID {
	case 780, 781:
		return linear(worked, 0, perByte(d.Unit)*portBytes)
	case 789, 790, 791, 792: // packets of low latency, by virtual channel
		return linear(worked, 0, portBytes/256)
	case 805, 806, 807, 808: // samples
		return linear(worked, 0, portBytes/256)
	case 865:
		return fixed(float64(n.port))
	case 870: // active
		return fixed(2)
	case 873:
		return fixed(0x1b)
	case 876:
		return fixed(float64(n.port % 18))
	case 872, 874, 875, 871:
		return fixed(0)
	}
	return fixed(0) // errors
}

// cpu is a Grace CPU, or one core of it.
type cpu struct {
	mix  mix
	core bool
}

func (c *cpu) cell(d *field.Descriptor) (cell, bool) {
	switch {
	case d.Kind != field.Int64 && d.Kind != field.Double:
		return none()
	case c.core && d.Level == field.Core:
		return c.coreCell(d)
	case !c.core && d.Level == field.CPU:
		return c.socketCell(d)
	}
	return none()
}

func (c *cpu) coreCell(d *field.Descriptor) (cell, bool) {
	k := 1.0
	if d.Unit == "%" || d.Max == 100 {
		k = 100
	}
	m := c.mix
	switch d.ID {
	case 1100:
		return linear(byLoad, 0.01*k, k*(m.hostCPU+m.hostCPUSystem+m.nice))
	case 1101:
		return linear(byLoad, 0, k*m.hostCPU)
	case 1102:
		return linear(byLoad, 0, k*m.nice)
	case 1103:
		return linear(byLoad, 0.008*k, k*m.hostCPUSystem)
	case 1104:
		return fixed(0.002 * k)
	case 1120:
		clockUnit := 1.0 // MHz
		if d.Unit == "kHz" || d.Unit == "KHz" {
			clockUnit = 1e3
		}
		return cell{op: pstate, a: 1107 * clockUnit, b: 3375 * clockUnit}, true
	}
	return none()
}

func (c *cpu) socketCell(d *field.Descriptor) (cell, bool) {
	switch d.ID {
	case 1110:
		return linear(byWarmth, 38, 30)
	case 1111:
		return fixed(95)
	case 1112:
		return fixed(105)
	case 1130:
		return linear(byPower, 55, 190)
	case 1131:
		return fixed(300)
	case 1132:
		return linear(byPower, 12, 6)
	case 1133:
		return linear(byPower, 260, 2100)
	}
	return none()
}
