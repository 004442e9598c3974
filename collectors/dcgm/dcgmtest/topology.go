package dcgmtest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"warpgauge/collectors/nvml/nvmltest"
)

// Fields of dcgm_fields.h that presets set.
const (
	fieldDriver = 1
	fieldName   = 50
	fieldBrand  = 51
	fieldSerial = 53
	fieldUUID   = 54
	fieldMinor  = 55
	fieldPCI    = 57
	driverText  = "580.65.06"
)

// LinkState is DCGM's dcgmNvLinkLinkState_t.
type LinkState int

// States of a link.
const (
	LinkAbsent LinkState = iota
	LinkDisabled
	LinkDown
	LinkUp
)

// instance is a GPU instance or a compute instance of the engine's hierarchy.
type instance struct {
	entity, parent Entity
	gpu            int
}

// board is a GPU model.
type board struct {
	name   string
	links  int
	memory float64 // MiB
	power  float64 // limit, W
}

// prepare creates the preset's entities and values.
func (e *Engine) prepare() error {
	c := e.config
	e.links, e.calls = map[Entity][]LinkState{}, map[string]uint64{}
	count := func(n int) int {
		if c.GPUs > 0 {
			return c.GPUs
		}
		return n
	}
	linksVersion, minor := 5, 0 // version of the links' struct: the newest that the engine accepts
	if n, _ := fmt.Sscanf(c.Version, "4.%d", &minor); n == 1 && minor < 6 {
		linksVersion = 4
	}
	e.put(true, c.Version, "engine version")
	e.put(true, c.Library, "engine library")
	e.put(true, time.Now().UnixMicro(), "engine epoch")
	e.put(true, linksVersion, "engine links")
	switch c.Preset {
	case "dgx-h100":
		e.addGPUs(board{"NVIDIA H100 80GB HBM3", 18, 81559, 700}, count(8))
		for s := range 4 {
			e.put(true, "", "entity", Switch(s))
			e.addLinks(Switch(s), 32)
		}
	case "a100-mig":
		e.addGPUs(board{"NVIDIA A100-SXM4-40GB", 12, 40960, 400}, count(2))
		e.partition(0, "1g.5gb", "2g.10gb", "3g.20gb/2")
	case "gb200":
		const cores = 72
		e.addGPUs(board{"NVIDIA GB200", 18, 189471, 1200}, count(4))
		for n := range 2 {
			e.put(true, "", "entity", CPU(n))
			e.put(true, fmt.Sprint(n*cores, " ", (n+1)*cores-1), "cpu", n)
			for c := range cores {
				e.put(true, "", "entity", Entity{KindCore, int64(n*cores + c)})
			}
		}
	case "pcie":
		e.addGPUs(board{"NVIDIA L40S", 0, 46068, 350}, count(8))
	default:
		return fmt.Errorf("there are dgx-h100, a100-mig, gb200, pcie")
	}
	e.value(Everything(), fieldDriver, Text(driverText))
	e.base = append(e.base, c.Lines...)
	return nil
}

func (e *Engine) value(of Entity, field int, v Value) {
	e.base = append(e.base, fmt.Sprintf("value %s %d %s", of, field, v.text))
}

func (e *Engine) addGPUs(b board, n int) {
	for i := range n {
		g := GPU(i)
		e.put(true, "", "entity", g)
		e.value(g, fieldName, Text(b.name))
		e.value(g, fieldBrand, Text("NVIDIA"))
		e.value(g, fieldSerial, Text(nvmltest.Serial(i)))
		e.value(g, fieldUUID, Text(nvmltest.UUID(i)))
		e.value(g, fieldMinor, Number(float64(i)))
		e.value(g, fieldPCI, Text("0000"+strings.ToUpper(nvmltest.PCI(i))))
		e.measure(g, b, float64(i))
		e.addLinks(g, b.links)
		for group, fields := range []string{"1002 1003 1004 1005 1006 1007 1008", "1001", "1009 1010 1011 1012"} {
			e.put(true, fields, "metrics", i, group, 0)
		}
		for peer := range n {
			status := 0 // DcgmNvLinkP2pStatusOK
			if peer == i {
				status = 6 // DcgmNvLinkP2pStatusUnknown
			}
			e.put(true, status, "peer", i, peer)
		}
	}
}

// measure gives a board invented values of a realistic size.
func (e *Engine) measure(g Entity, b board, d float64) {
	e.value(g, 156, Ramp(1e9*(d+1), 350_000)) // energy, mJ
	e.value(g, 449, Ramp(1000*d, 250))        // NVLink bandwidth
	for field, v := range map[int]float64{
		100: 1980 - 15*d, 101: 2619, // SM and memory clocks, MHz
		140: 52 + d, 150: 41 + d, // temperatures
		155: b.power/2 + d, 157: b.power/2 + d, // W
		203: 80 + d, 204: 30 + d, // utilisation
		250: b.memory, 251: b.memory - 4096 - d, 252: 4096 + d, 253: 512,
		1001: 0.75 + d/100, 1002: 0.6, 1003: 0.4, 1004: 0.35, 1005: 0.5, 1006: 0, 1007: 0.1, 1008: 0.02, // profiling
		1009: 1.5e9, 1010: 2.5e9, 1011: 1e10, 1012: 1.1e10,
	} {
		e.value(g, field, Number(v))
	}
	for _, field := range []int{
		112, 202, 206, 207, 310, 311, 312, 313, // reasons of clock events, PCIe replays, encoder, decoder, ECC
		346, 388, 389, 390, 391, 392, 393, 394, 395, 396, // threshold of SRAM, banks short of spare rows, retired pages, remapped rows
		1218, 1507, 1523, // bit errors, memory that cannot be repaired, recovery action
	} {
		e.value(g, field, Number(0))
	}
}

func (e *Engine) addLinks(of Entity, n int) {
	e.links[of] = slices.Repeat([]LinkState{LinkUp}, n)
	for i := range n {
		e.put(true, "", "entity", Link(of, i))
	}
	e.putLinks(of)
}

func (e *Engine) putLinks(of Entity) {
	states := strings.Trim(fmt.Sprint(e.links[of]), "[]")
	e.put(states != "", states, "links", of)
}

// SetLink changes the state of a link of a GPU or a switch.
func (e *Engine) SetLink(of Entity, link int, s LinkState) {
	if link >= len(e.links[of]) {
		e.fail(fmt.Errorf("set link %d of %s: there is none", link, of))
		return
	}
	e.change(func() {
		e.links[of][link] = s
		e.putLinks(of)
	})
}

// SetPeer sets the NVLink status between two GPUs, a DcgmNvLinkP2pStatus….
func (e *Engine) SetPeer(a, b, status int) { e.set(true, status, "peer", a, b) }

// Add adds an entity to the engine's list, for example ConnectX(0) or a newly bound GPU. supported marks it as supported
// by DCGM. The list may contain an entity twice.
func (e *Engine) Add(x Entity, supported bool) {
	e.change(func() {
		e.script = append(e.script, line{"entity " + x.String(), map[bool]string{false: "unsupported"}[supported]})
	})
}

// family returns an entity and its parts.
func (e *Engine) family(of Entity) []Entity {
	out := []Entity{of}
	for n := range e.links[of] {
		out = append(out, Link(of, n))
	}
	for _, m := range e.parts {
		if slices.Contains(out, m.parent) {
			out = append(out, m.entity)
		}
	}
	return out
}

// removeAll removes entities.
func (e *Engine) removeAll(gone []Entity) {
	for _, x := range gone {
		e.put(false, "", "entity", x)
		e.put(false, "", "links", x)
		e.put(false, "", "mig", x)
		delete(e.links, x)
	}
	e.parts = slices.DeleteFunc(e.parts, func(m instance) bool { return slices.Contains(gone, m.entity) })
}

// Remove removes an entity and its parts, like a GPU that was unbound.
func (e *Engine) Remove(x Entity) { e.change(func() { e.removeAll(e.family(x)) }) }

// instancesPerGPU is the number of IDs that DCGM reserves for the instances of a GPU.
const instancesPerGPU = 8

// SetMIG replaces a GPU's instances by one per profile, such as "1g.5gb", or "3g.20gb/2" with two compute instances.
// Without profiles it ends MIG mode.
func (e *Engine) SetMIG(gpu int, profiles ...string) {
	e.change(func() {
		var gone []Entity
		for _, m := range e.parts {
			if m.gpu == gpu {
				gone = append(gone, m.entity)
			}
		}
		e.removeAll(gone)
		e.partition(gpu, profiles...)
	})
}

// MIGUUID returns the UUID of a compute instance.
func MIGUUID(gpu, instance, compute int) string {
	return fmt.Sprintf("MIG-fa4e%04x-%04x-5000-8000-%012x", gpu, instance<<8|compute, gpu)
}

func (e *Engine) partition(gpu int, profiles ...string) {
	for i, p := range profiles {
		name, parts, split := strings.Cut(p, "/")
		compute := 1
		if n, err := strconv.Atoi(parts); split && err == nil {
			compute = n
		}
		add := func(x, parent Entity, compute string) {
			e.put(true, "", "entity", x)
			e.value(x, fieldName, Text(name))
			e.parts = append(e.parts, instance{x, parent, gpu})
			e.put(true, fmt.Sprintf("%s %s %d %d %s %d %s", parent, nvmltest.UUID(gpu), gpu, i+1, compute, i, name[:1]), "mig", x)
		}
		in := Instance(gpu*instancesPerGPU + i)
		add(in, GPU(gpu), "0xffffffff")
		for c := range compute {
			ci := Compute(int(in.ID)*instancesPerGPU + c)
			add(ci, in, strconv.Itoa(c))
			e.value(ci, fieldUUID, Text(MIGUUID(gpu, i+1, c)))
		}
	}
}
