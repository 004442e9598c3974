package fake

import (
	"cmp"
	"fmt"
	"strings"

	"warpgauge/pkg/field"
)

// profile is a node model.
type profile struct {
	name     string
	board    *board
	gpus     int
	switches int // NVSwitches
	ports    int // links per switch
	cpus     int
	cores    int     // per CPU
	shapes   []Shape // GPU i has shapes[i mod len]
	// partition returns the MIG instances of GPU i, if any.
	partition func(i int) []slice
}

// slice is a MIG GPU instance: the driver's ID and profile name, its sevenths of the SMs and eighths of the memory.
type slice struct {
	id              int
	profile         string
	compute, memory int
	shape           Shape
}

// DefaultProfile is the profile of Options without one.
const DefaultProfile = "dgx-h100"

func profiles() []*profile {
	return []*profile{
		{
			name: DefaultProfile, gpus: 8, switches: 4, ports: 36,
			board: &board{
				vendor: field.VendorNVIDIA, model: "NVIDIA H100 80GB HBM3", brand: "NVIDIA",
				memoryMiB: 81559, reservedMiB: 551, bar1MiB: 131072,
				idleWatts: 71, limitWatts: 700, minWatts: 200, maxWatts: 700,
				idleMHz: 345, maxMHz: 1980, cappedMHz: 1710, memoryMHz: 2619, idleMemoryMHz: 2619, videoMHz: 1545,
				idleCelsius: 31, hotCelsius: 68, idleMemCelsius: 39, hotMemCelsius: 83,
				maxOpCelsius: 87, maxMemOpCelsius: 95, slowdownCelsius: 92, shutdownCelsius: 95,
				pcieGen: 5, pcieWidth: 16, links: 18, linkBytes: 25e9, capability: [2]int{9, 0},
				ecc: true, profiling: true, memoryTemp: true, fabric: true, vbios: "96.00.89.00.01", imageVersion: "G520.0200.00.05",
			},
			shapes: []Shape{Training, Training, Training, Training, Inference, Inference, Bursts, Idle},
		},
		{
			name: "dgx-a100-mig", gpus: 8, switches: 6, ports: 16,
			board: &board{
				vendor: field.VendorNVIDIA, model: "NVIDIA A100-SXM4-40GB", brand: "NVIDIA",
				memoryMiB: 40960, reservedMiB: 427, bar1MiB: 65536,
				idleWatts: 52, limitWatts: 400, minWatts: 100, maxWatts: 400,
				idleMHz: 210, maxMHz: 1410, cappedMHz: 1275, memoryMHz: 1215, idleMemoryMHz: 1215, videoMHz: 1275,
				idleCelsius: 29, hotCelsius: 64, idleMemCelsius: 33, hotMemCelsius: 77,
				maxOpCelsius: 85, maxMemOpCelsius: 95, slowdownCelsius: 89, shutdownCelsius: 92,
				pcieGen: 4, pcieWidth: 16, links: 12, linkBytes: 25e9, capability: [2]int{8, 0},
				ecc: true, profiling: true, memoryTemp: true, mig: true, vbios: "92.00.45.00.03", imageVersion: "G506.0200.00.04",
			},
			shapes:    []Shape{Inference, Inference, Inference, Inference, Training, Training, Bursts, Idle},
			partition: a100Slices,
		},
		{
			name: "gb200", gpus: 4, cpus: 2, cores: 72,
			board: &board{
				vendor: field.VendorNVIDIA, model: "NVIDIA GB200", brand: "NVIDIA",
				memoryMiB: 189471, reservedMiB: 1128, bar1MiB: 262144,
				idleWatts: 140, limitWatts: 1200, minWatts: 200, maxWatts: 1200,
				idleMHz: 120, maxMHz: 2062, cappedMHz: 1837, memoryMHz: 3996, idleMemoryMHz: 3996, videoMHz: 1612,
				idleCelsius: 33, hotCelsius: 62, idleMemCelsius: 36, hotMemCelsius: 74,
				maxOpCelsius: 85, maxMemOpCelsius: 95, slowdownCelsius: 88, shutdownCelsius: 93,
				pcieGen: 5, pcieWidth: 16, links: 18, linkBytes: 50e9, capability: [2]int{10, 0},
				ecc: true, profiling: true, memoryTemp: true, fabric: true, c2c: true, vbios: "97.00.82.00.0D", imageVersion: "G548.0201.00.06",
			},
			shapes: []Shape{Training, Training, Inference, Bursts},
		},
		{
			name: "mi300x", gpus: 8,
			board: &board{
				vendor: field.VendorAMD, model: "AMD Instinct MI300X", brand: "AMD Instinct",
				memoryMiB: 196592, bar1MiB: 262144,
				idleWatts: 137, limitWatts: 750, minWatts: 200, maxWatts: 750,
				idleMHz: 132, maxMHz: 2100, cappedMHz: 1680, memoryMHz: 1300, idleMemoryMHz: 900, videoMHz: 1800,
				idleCelsius: 38, hotCelsius: 74, idleMemCelsius: 33, hotMemCelsius: 64,
				slowdownCelsius: 100, shutdownCelsius: 110,
				pcieGen: 5, pcieWidth: 16, links: 7, linkBytes: 64e9,
				ecc: true, memoryTemp: true, vbios: "113-M3000100-102",
			},
			shapes: []Shape{Training, Training, Training, Training, Inference, Inference, Bursts, Idle},
		},
		{
			name: "rtx4090", gpus: 2,
			board: &board{
				vendor: field.VendorNVIDIA, model: "NVIDIA GeForce RTX 4090", brand: "GeForce", consumer: true,
				memoryMiB: 24564, reservedMiB: 348, bar1MiB: 32768,
				idleWatts: 18, limitWatts: 450, minWatts: 150, maxWatts: 600,
				idleMHz: 210, maxMHz: 2745, cappedMHz: 2520, memoryMHz: 10501, idleMemoryMHz: 405, videoMHz: 1890,
				idleCelsius: 34, hotCelsius: 72, idleMemCelsius: 40, hotMemCelsius: 80,
				maxOpCelsius: 84, slowdownCelsius: 100, shutdownCelsius: 106,
				pcieGen: 4, pcieWidth: 16, capability: [2]int{8, 9}, fan: true, vbios: "95.02.3C.40.B8", imageVersion: "G002.0000.00.03",
			},
			shapes: []Shape{Inference, Bursts},
		},
	}
}

// a100Slices partitions GPUs 0 to 3 (and 8 to 11 …) of a node, each in a different way. The A100's placement rules allow
// each way.
func a100Slices(i int) []slice {
	switch i % 8 {
	case 0:
		return []slice{
			{id: 1, profile: "3g.20gb", compute: 3, memory: 4, shape: Training},
			{id: 5, profile: "2g.10gb", compute: 2, memory: 2, shape: Inference},
			{id: 13, profile: "1g.5gb", compute: 1, memory: 1, shape: Bursts},
			{id: 14, profile: "1g.5gb", compute: 1, memory: 1, shape: Idle},
		}
	case 1:
		return []slice{
			{id: 1, profile: "3g.20gb", compute: 3, memory: 4, shape: Inference},
			{id: 2, profile: "3g.20gb", compute: 3, memory: 4, shape: Training},
		}
	case 2:
		out := make([]slice, 7)
		for n := range out {
			out[n] = slice{id: 7 + n, profile: "1g.5gb", compute: 1, memory: 1, shape: []Shape{Inference, Bursts, Idle}[n%3]}
		}
		return out
	case 3:
		return []slice{{id: 0, profile: "7g.40gb", compute: 7, memory: 8, shape: Inference}}
	}
	return nil
}

// Profiles returns the names of all profiles, the default first.
func Profiles() []string {
	var names []string
	for _, p := range profiles() {
		names = append(names, p.name)
	}
	return names
}

func findProfile(name string) (*profile, error) {
	name = cmp.Or(name, DefaultProfile)
	for _, p := range profiles() {
		if p.name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("find profile %q: there are %s", name, strings.Join(Profiles(), ", "))
}

// peers returns the GPUs that GPU i of n reaches over NVLink or XGMI: the others in its group of eight.
func peers(i, n int) []int {
	const group = 8
	var out []int
	first := i / group * group
	for j := first; j < min(first+group, n); j++ {
		if j != i {
			out = append(out, j)
		}
	}
	return out
}

// board is a GPU model. Figures come from the vendors' data sheets. Those missing there are plausible guesses.
type board struct {
	vendor *field.Vendor
	model  string // without the suffix for simulated models
	brand  string

	memoryMiB, reservedMiB, bar1MiB float64

	idleWatts, limitWatts, minWatts, maxWatts float64

	idleMHz, maxMHz, cappedMHz       float64 // SM clock: idle, boost, at the power limit
	memoryMHz, idleMemoryMHz         float64
	videoMHz                         float64
	idleCelsius, hotCelsius          float64 // GPU temperature at no load and after a long full load
	idleMemCelsius, hotMemCelsius    float64
	maxOpCelsius, maxMemOpCelsius    float64
	slowdownCelsius, shutdownCelsius float64
	pcieGen, pcieWidth               float64
	links                            int     // NVLink or XGMI
	linkBytes                        float64 // bytes/s per link and direction
	capability                       [2]int  // CUDA compute capability
	ecc, profiling, memoryTemp       bool
	fabric, c2c, fan, consumer, mig  bool
	vbios, imageVersion              string
}

// modelSuffix ends every simulated model name, so that the numbers cannot be mistaken for measurements.
const modelSuffix = " (simulated)"

// Driver versions also end in a simulation mark.
const (
	nvidiaDriver = "550.54.15-simulated"
	nvmlVersion  = "12.550.54.15-simulated"
	amdDriver    = "6.12.12-simulated"
	cudaVersion  = 12040 // 12.4
)
