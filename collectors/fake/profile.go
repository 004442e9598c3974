package fake

import (
	"fmt"
	"strings"
)

// profile is a model of node.
type profile struct {
	name     string
	summary  string
	board    *board
	gpus     int
	switches int // NVSwitches
	ports    int // links of a switch
	cpus     int
	cores    int     // of a CPU
	shapes   []Shape // of GPU i: shapes[i mod len]
	// partition returns the MIG instances of GPU i, if any.
	partition func(i int) []slice
}

// slice is a MIG GPU instance: id and profile as the driver numbers and names
// them, sevenths of the compute and eighths of the memory.
type slice struct {
	id              int
	profile         string
	compute, memory int
	shape           Shape
}

// DefaultProfile is used where none is named.
const DefaultProfile = "dgx-h100"

func profiles() []*profile {
	return []*profile{
		{
			name: DefaultProfile, summary: "8 H100 with 18 NVLinks each, 4 NVSwitches",
			board: h100(), gpus: 8, switches: 4, ports: 36,
			shapes: []Shape{Training, Training, Training, Training, Inference, Inference, Bursts, Idle},
		},
		{
			name: "dgx-a100-mig", summary: "8 A100, 4 of them cut into MIG instances, 6 NVSwitches",
			board: a100(), gpus: 8, switches: 6, ports: 16,
			shapes:    []Shape{Inference, Inference, Inference, Inference, Training, Training, Bursts, Idle},
			partition: a100Slices,
		},
		{
			name: "gb200", summary: "a compute tray: 4 GB200 with 18 NVLinks each, 2 Grace CPUs",
			board: gb200(), gpus: 4, cpus: 2, cores: 72,
			shapes: []Shape{Training, Training, Inference, Bursts},
		},
		{
			name: "mi300x", summary: "8 AMD MI300X with 7 XGMI links each",
			board: mi300x(), gpus: 8,
			shapes: []Shape{Training, Training, Training, Training, Inference, Inference, Bursts, Idle},
		},
		{
			name: "rtx4090", summary: "2 consumer boards: fan, no ECC, no profiling, no NVLink",
			board: rtx4090(), gpus: 2,
			shapes: []Shape{Inference, Bursts},
		},
	}
}

// a100Slices cuts GPUs 0 to 3 (and 8 to 11 …) of a node, each in another way
// that the A100's placement rules allow.
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
	if name == "" {
		name = DefaultProfile
	}
	for _, p := range profiles() {
		if p.name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("find profile %q: there are %s", name, strings.Join(Profiles(), ", "))
}

// peers returns the GPUs that GPU i of n reaches by NVLink or XGMI: those of
// its group of eight, which is as far as a simulated node's links go.
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
