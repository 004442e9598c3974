//go:build linux && cgo

package nvml

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// kernelGPU is a GPU as the kernel driver knows it, whether NVML answers or not.
type kernelGPU struct {
	at                 pciAddress
	uuid, model, minor string // "" where the driver does not say
}

// kernelGPUs reads /proc/driver/nvidia/gpus, ordered by address. Excluded GPUs,
// which NVML does not count, are left out. There are none on WSL.
func kernelGPUs(root string) []kernelGPU {
	var out []kernelGPU
	dir := filepath.Join("/", root, "proc/driver/nvidia/gpus")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		at, ok := parsePCI(e.Name())
		if !ok {
			continue
		}
		g := kernelGPU{at: at}
		text, err := os.ReadFile(filepath.Join(dir, e.Name(), "information"))
		if err == nil && !g.read(string(text)) {
			continue
		}
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b kernelGPU) int { return comparePCI(a.at, b.at) })
	return out
}

// read takes in the file "information", of lines such as "GPU UUID: 	 GPU-…". It
// reports false for a GPU that is excluded.
func (g *kernelGPU) read(text string) (counts bool) {
	counts = true
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case strings.ContainsAny(value, "?"): // a UUID that was not read yet
		case key == "GPU UUID":
			g.uuid = value
		case key == "Model":
			g.model = value
		case key == "Device Minor":
			g.minor = value
		case key == "GPU Excluded":
			counts = value != "Yes"
		}
	}
	return counts
}

// identifyRest finds out who the GPUs are that NVML says nothing about: those of
// the kernel's that no other one is. NVML numbers GPUs in the order of their PCI
// addresses, so the candidates for an index lie between its neighbours; where
// there are as many as indexes to fill, they fill them in order.
//
// unknown[i] is true for an index that NVML has not answered for; at[i] is the
// address of one that it has.
func identifyRest(unknown []bool, at []pciAddress, kernel []kernelGPU) map[int]kernelGPU {
	out := map[int]kernelGPU{}
	for first := 0; first < len(unknown); first++ {
		if !unknown[first] {
			continue
		}
		end := first
		for end < len(unknown) && unknown[end] {
			end++
		}
		var candidates []kernelGPU
		for _, k := range kernel {
			if (first == 0 || comparePCI(at[first-1], k.at) < 0) && (end == len(unknown) || comparePCI(k.at, at[end]) < 0) {
				candidates = append(candidates, k)
			}
		}
		if len(candidates) == end-first && inOrder(unknown, at) {
			for i, k := range candidates {
				out[first+i] = k
			}
		}
		first = end
	}
	return out
}

// inOrder reports whether the addresses that are known ascend.
func inOrder(unknown []bool, at []pciAddress) bool {
	var known []pciAddress
	for i, a := range at {
		if !unknown[i] {
			known = append(known, a)
		}
	}
	return slices.IsSortedFunc(known, comparePCI)
}
