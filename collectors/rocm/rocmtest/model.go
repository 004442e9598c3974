package rocmtest

import (
	"fmt"
	"slices"
	"strings"
)

// Model is a board model.
type Model uint8

// The boards that a Tree can show.
const (
	MI250X Model = iota // one GPU is one die of a package of two; only the first die of a package reports power
	MI300X              // one GPU is one package, which Options.Partition divides
	RX7900              // Radeon RX 7900 XTX: fan, edge sensor, no RAS, no XGMI
	APU                 // graphics in a processor: memory is the host's, metrics of format 2
)

// Models returns the names of the models, in the order of their constants.
func Models() []string { return []string{"mi250x", "mi300x", "rx7900", "apu"} }

// ParseModel returns the model with a name.
func ParseModel(name string) (Model, error) {
	i := slices.Index(Models(), name)
	if i < 0 {
		return 0, fmt.Errorf("unknown model %q, want %s", name, strings.Join(Models(), ", "))
	}
	return Model(i), nil
}

// sensor is one temperature of a board.
type sensor struct {
	n     int // tempN
	label string
}

// spec holds the constants of a model. Figures come from public specifications and from sysfs listings in bug reports.
type spec struct {
	name, sku, vbios string
	device, subdev   int // PCI ids
	class            int // PCI class
	gfxTarget        int // gfx_target_version of KFD
	vram, gtt        uint64
	cus              int // compute units
	simdPerCU        int
	arrays           int
	cuPerArray       int
	xccs             int
	sclkLo, sclkHi   uint64 // MHz
	mclkLo, mclkHi   uint64
	capWatts         uint64
	sensors          []sensor
	power            string // hwmon file of the power: power1_average or power1_input
	metrics          string // revision of gpu_metrics
	lanes            int
	speed            string // as current_link_speed prints it
	decigt           uint64 // speed in 0.1 GT/s
	fan, ras, xgmi   bool
	pcieBW           bool
	apu              bool
	dies             int // GPUs in a package
	partitions       []string
	memoryModes      []string
}

func (m Model) spec() spec {
	switch m {
	case MI300X:
		return spec{
			name: "AMD Instinct MI300X OAM", sku: "102-G30211-00", vbios: "113-M3000100-102",
			device: 0x74a1, subdev: 0x74a1, class: 0x120000, gfxTarget: 90402,
			vram: 206141652992, gtt: 540846354432, cus: 304, simdPerCU: 4, arrays: 32, cuPerArray: 10, xccs: 8,
			sclkLo: 132, sclkHi: 2100, mclkLo: 900, mclkHi: 1300, capWatts: 750,
			sensors: []sensor{{2, "junction"}, {3, "mem"}}, power: "power1_input", metrics: "1.5",
			lanes: 16, speed: "32.0 GT/s PCIe", decigt: 320, ras: true, xgmi: true, dies: 1,
			partitions: []string{"SPX", "DPX", "QPX", "CPX"}, memoryModes: []string{"NPS1", "NPS4"},
		}
	case RX7900:
		return spec{
			name: "Radeon RX 7900 XTX", sku: "", vbios: "113-D70200XT-023",
			device: 0x744c, subdev: 0x0e3b, class: 0x030000, gfxTarget: 110000,
			vram: 25753026560, gtt: 33554432000, cus: 96, simdPerCU: 2, arrays: 12, cuPerArray: 8, xccs: 1,
			sclkLo: 500, sclkHi: 2482, mclkLo: 96, mclkHi: 1249, capWatts: 303,
			sensors: []sensor{{1, "edge"}, {2, "junction"}, {3, "mem"}}, power: "power1_average", metrics: "1.3",
			lanes: 16, speed: "16.0 GT/s PCIe", decigt: 160, fan: true, pcieBW: true, dies: 1,
		}
	case APU:
		return spec{
			name: "", sku: "", vbios: "113-PHXGENERIC-001",
			device: 0x15bf, subdev: 0x0124, class: 0x030000, gfxTarget: 110003,
			vram: 4294967296, gtt: 14528094208, cus: 12, simdPerCU: 2, arrays: 2, cuPerArray: 6, xccs: 1,
			sclkLo: 800, sclkHi: 2700, mclkLo: 1000, mclkHi: 2800, capWatts: 54,
			sensors: []sensor{{1, "edge"}}, power: "power1_input", metrics: "3.0",
			lanes: 16, speed: "16.0 GT/s PCIe", decigt: 160, apu: true, dies: 1,
		}
	default:
		return spec{
			name: "AMD INSTINCT MI250X (MCM) OAM AC MBA", sku: "D65201", vbios: "113-D65201-054",
			device: 0x7408, subdev: 0x0b0c, class: 0x120000, gfxTarget: 90010,
			vram: 68702699520, gtt: 540846354432, cus: 110, simdPerCU: 4, arrays: 8, cuPerArray: 14, xccs: 1,
			sclkLo: 500, sclkHi: 1700, mclkLo: 900, mclkHi: 1600, capWatts: 560,
			sensors: []sensor{{1, "edge"}, {2, "junction"}, {3, "mem"}}, power: "power1_average", metrics: "1.3",
			lanes: 16, speed: "16.0 GT/s PCIe", decigt: 160, ras: true, xgmi: true, pcieBW: true, dies: 2,
		}
	}
}

// instances returns the number of devices of a board in a compute partition mode.
func (s spec) instances(mode string) int {
	switch mode {
	case "DPX":
		return 2
	case "TPX":
		return 3
	case "QPX":
		return 4
	case "CPX":
		return s.xccs
	default:
		return 1
	}
}
