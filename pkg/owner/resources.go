package owner

import (
	"slices"
	"strings"
)

// Drivers of dynamic resource allocation whose devices are GPUs.
const (
	driverNVIDIA = "gpu.nvidia.com"
	driverAMD    = "gpu.amd.com"
)

const vendorAMD = "amd.com/"

// Keep returns which extended resources count: those of NVIDIA's and AMD's device
// plugins, with their partitions and shares, and the further names.
func Keep(further []string) func(resource string) bool {
	further = slices.Clone(further)
	return func(resource string) bool {
		switch {
		case resource == "nvidia.com/gpu", resource == "nvidia.com/gpu.shared", resource == "amd.com/gpu":
			return true
		case strings.HasPrefix(resource, "nvidia.com/mig-"):
			return true
		case strings.HasPrefix(resource, vendorAMD) && isPartitionStyle(resource[len(vendorAMD):]):
			return true
		}
		return slices.Contains(further, resource)
	}
}

// isPartitionStyle reports whether s is what AMD's plugin calls a kind of
// partition with the naming strategy "mixed": spx_nps1, cpx_nps4.
func isPartitionStyle(s string) bool {
	compute, memory, found := strings.Cut(s, "_")
	if !found || len(compute) != 3 || !strings.HasSuffix(compute, "px") || compute[0] < 'a' || compute[0] > 'z' {
		return false
	}
	number, found := strings.CutPrefix(memory, "nps")
	return found && isNumber(number)
}

// KeepDriver reports whether a driver of dynamic resource allocation counts.
func KeepDriver(driver string) bool { return driver == driverNVIDIA || driver == driverAMD }
