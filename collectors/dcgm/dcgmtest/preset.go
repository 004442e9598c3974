package dcgmtest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"warpgauge/collectors/nvml/nvmltest"
)

// Fields of dcgm_fields.h that presets set.
const (
	fieldDriver  = 1
	fieldName    = 50
	fieldSerial  = 53
	fieldUUID    = 54
	fieldMinor   = 55
	fieldPCI     = 57
	fieldBrand   = 51
	driverText   = "580.65.06"
	linksPerGPU  = 18
	linksPerBoth = 32 // of an NVSwitch in use
)

// board is a kind of GPU.
type board struct {
	name   string
	links  int
	memory float64 // MiB
	power  float64 // W at most
}

func boards() map[string]board {
	return map[string]board{
		"h100":  {"NVIDIA H100 80GB HBM3", linksPerGPU, 81559, 700},
		"a100":  {"NVIDIA A100-SXM4-40GB", 12, 40960, 400},
		"gb200": {"NVIDIA GB200", linksPerGPU, 189471, 1200},
		"l40s":  {"NVIDIA L40S", 0, 46068, 350},
	}
}

// prepare creates the preset's entities and values.
func (e *Engine) prepare() error {
	e.epoch = time.Now()
	e.calls = map[string]uint64{}
	e.settings = []string{
		"version " + e.config.Version, "library " + e.config.Library, "epoch " + strconv.FormatInt(e.epoch.UnixMicro(), 10),
		"links " + linksVersion(e.config.Version),
	}
	count := func(n int) int {
		if e.config.GPUs > 0 {
			return e.config.GPUs
		}
		return n
	}
	switch e.config.Preset {
	case "dgx-h100":
		e.addGPUs(boards()["h100"], count(8))
		for s := range 4 {
			e.addSwitch(s, linksPerBoth)
		}
	case "a100-mig":
		e.addGPUs(boards()["a100"], count(2))
		e.partition(0, "1g.5gb", "2g.10gb", "3g.20gb/2")
	case "gb200":
		e.addGPUs(boards()["gb200"], count(4))
		e.addCPU(0, 0, 71)
		e.addCPU(1, 72, 143)
	case "pcie":
		e.addGPUs(boards()["l40s"], count(8))
	case "empty":
	default:
		return fmt.Errorf("there are dgx-h100, a100-mig, gb200, pcie, empty")
	}
	e.base = append(e.base, fmt.Sprintf("value * * %d text %s", fieldDriver, driverText))
	return nil
}

// linksVersion returns the newest version of the links' struct that an engine accepts.
func linksVersion(version string) string {
	if v := strings.SplitN(version, ".", 3); len(v) > 1 && v[0] == "4" {
		if minor, err := strconv.Atoi(v[1]); err == nil && minor < 6 {
			return "4"
		}
	}
	return "5"
}

func (e *Engine) value(of Entity, field int, v Value) {
	e.base = append(e.base, setting{of, field, v}.line())
}

func (e *Engine) addGPUs(b board, n int) {
	for i := range n {
		g := GPU(i)
		e.entities = append(e.entities, g)
		e.value(g, fieldName, Text(b.name))
		e.value(g, fieldBrand, Text("NVIDIA"))
		e.value(g, fieldSerial, Text(nvmltest.Serial(i)))
		e.value(g, fieldUUID, Text(nvmltest.UUID(i)))
		e.value(g, fieldMinor, Number(float64(i)))
		e.value(g, fieldPCI, Text("0000"+strings.ToUpper(nvmltest.PCI(i))))
		e.measure(g, b, i)
		if b.links > 0 {
			e.addLinks(g, slices.Repeat([]LinkState{LinkUp}, b.links))
		}
		e.metrics = append(e.metrics, metricLines(i)...)
	}
	for a := range n {
		for b := range n {
			status := 0 // DcgmNvLinkP2pStatusOK
			if a == b {
				status = 6 // DcgmNvLinkP2pStatusUnknown
			}
			e.peers = append(e.peers, fmt.Sprintf("peer %d %d %d", a, b, status))
		}
	}
}

// measure gives a board values of the right kind and size; they are not measurements.
func (e *Engine) measure(g Entity, b board, i int) {
	d := float64(i)
	values := map[int]Value{
		100: Number(1980 - 15*d), 101: Number(2619), // SM and memory clocks, MHz
		112: Number(0),                           // reasons of clock events
		140: Number(52 + d), 150: Number(41 + d), // temperatures
		155: Number(b.power/2 + d), 156: Ramp(1e9*(d+1), 350_000), 157: Number(b.power/2 + d), // W, mJ, W
		202: Number(0),                                                           // PCIe replays
		203: Number(80 + d), 204: Number(30 + d), 206: Number(0), 207: Number(0), // utilisation
		250: Number(b.memory), 251: Number(b.memory - 4096 - d), 252: Number(4096 + d), 253: Number(512),
		310: Number(0), 311: Number(0), 312: Number(0), 313: Number(0), // ECC
		346: Number(0), 390: Number(0), 391: Number(0), 392: Number(0), // threshold of SRAM, retired pages
		388: Number(0), 389: Number(0), 393: Number(0), 394: Number(0), 395: Number(0), 396: Number(0), // remapped rows, banks short of them
		1218: Number(0), 1507: Number(0), 1523: Number(0), // bit errors, memory that cannot be repaired, recovery action
		449:  Ramp(1000*d, 250),                                                              // NVLink bandwidth
		1001: Number(0.75 + d/100), 1002: Number(0.6), 1003: Number(0.4), 1004: Number(0.35), // profiling
		1005: Number(0.5), 1006: Number(0), 1007: Number(0.1), 1008: Number(0.02),
		1009: Number(1.5e9), 1010: Number(2.5e9), 1011: Number(1e10), 1012: Number(1.1e10),
	}
	for _, field := range slices.Sorted(maps.Keys(values)) {
		e.value(g, field, values[field])
	}
}

func metricLines(gpu int) []string {
	return []string{
		fmt.Sprintf("metrics %d 0 0 1002 1003 1004 1005 1006 1007 1008", gpu),
		fmt.Sprintf("metrics %d 1 0 1001", gpu),
		fmt.Sprintf("metrics %d 2 0 1009 1010 1011 1012", gpu),
	}
}

func (e *Engine) addSwitch(n, links int) {
	s := Switch(n)
	e.entities = append(e.entities, s)
	e.addLinks(s, slices.Repeat([]LinkState{LinkUp}, links))
}

func (e *Engine) addCPU(n, first, last int) {
	e.entities = append(e.entities, CPU(n))
	e.cpus = append(e.cpus, fmt.Sprintf("cpu %d %d %d", n, first, last))
	for c := first; c <= last; c++ {
		e.entities = append(e.entities, Core(c))
	}
}
