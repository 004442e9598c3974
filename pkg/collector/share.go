package collector

import (
	"strconv"
	"strings"

	"warpgauge/pkg/field"
)

// migSlices are the compute slices of the GPUs that can be divided, by a part of their model:
// https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-gpus.html, column "Max Number of
// Instances"; B300 and GB300 have profiles up to 7g as well. The RTX PRO 4500's are in NVIDIA's
// documentation of vGPU types. Longer names come first.
var migSlices = []struct {
	model  string
	slices int
}{
	{"RTX PRO 6000", 4}, {"RTX PRO 5000", 2}, {"RTX PRO 4500", 2}, {"A30", 4},
	{"A100", 7}, {"A800", 7}, {"H100", 7}, {"H800", 7}, {"H200", 7}, {"H20", 7}, {"B200", 7}, {"B300", 7}, {"GH200", 7},
}

// Share returns which part of its GPU an instance is: of a MIG instance the compute slices
// that it has of those of the GPU, of an AMD partition one of n, which are equal. It is 0 if
// that is not known, and for what is no instance of a GPU.
func (d *Device) Share(partitions int) float64 {
	if d.Level != field.Instance {
		return 0
	}
	switch d.Instance.Profile {
	case "dpx", "tpx", "qpx", "cpx":
		return 1 / float64(max(1, partitions))
	}
	text, _, mig := strings.Cut(d.Instance.Profile, "g.")
	n, err := strconv.Atoi(text)
	if !mig || err != nil {
		return 0
	}
	for _, m := range migSlices {
		if strings.Contains(d.Model, m.model) {
			if n < 1 || n > m.slices {
				return 0
			}
			return float64(n) / float64(m.slices)
		}
	}
	return 0
}
