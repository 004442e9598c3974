//go:build linux && cgo

package nvml

import (
	"slices"
	"strings"
	"sync"
)

// rollCall remembers the GPUs that NVML has identified since the process started.
// It serves where the kernel says nothing, as in a container without NVIDIA's
// part of /proc: a GPU that is lost must not come back to us as another one.
type rollCall struct {
	mu   sync.Mutex
	gpus []kernelGPU // ordered by address
}

// note takes in the GPUs that were identified.
func (r *rollCall) note(found []*gpu) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range found {
		at, ok := parsePCI(g.device.PCIBusID)
		if g.err != nil || !ok {
			continue
		}
		k := kernelGPU{at: at, uuid: g.device.UUID, model: g.device.Model, minor: strings.TrimPrefix(g.device.Node, "nvidia")}
		i, known := slices.BinarySearchFunc(r.gpus, k, func(a, b kernelGPU) int { return comparePCI(a.at, b.at) })
		if known {
			r.gpus[i] = k
		} else {
			r.gpus = slices.Insert(r.gpus, i, k)
		}
	}
}

func (r *rollCall) all() []kernelGPU {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.gpus)
}
