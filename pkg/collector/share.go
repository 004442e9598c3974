package collector

import (
	"strconv"
	"strings"

	"warpgauge/pkg/field"
)

// migSlices holds the number of compute slices of GPUs with MIG, by a part of the model name. Sources: column "Max Number of
// Instances" in https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-gpus.html, and NVIDIA's documentation of
// vGPU types for the RTX PRO 4500. B300 and GB300 also have profiles up to 7g. Longer names come first.
var migSlices = []struct {
	model  string
	slices int
}{
	{"RTX PRO 6000", 4}, {"RTX PRO 5000", 2}, {"RTX PRO 4500", 2}, {"A30", 4},
	{"A100", 7}, {"A800", 7}, {"H100", 7}, {"H800", 7}, {"H200", 7}, {"H20", 7}, {"B200", 7}, {"B300", 7}, {"GH200", 7},
}

// Share returns an instance's share of its GPU: for a MIG instance its share of the GPU's compute slices, for one of n
// equal partitions 1/n. It returns 0 if the share is unknown or d is not a GPU instance.
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
