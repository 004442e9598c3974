package collector

import (
	"strconv"
	"strings"

	"warpgauge/pkg/field"
)

// migSlices holds the compute slices of the GPUs with MIG, by a part of their model name:
// https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-gpus.html, column "Max Number of Instances"; B300
// and GB300 have profiles up to 7g as well. The RTX PRO 4500's are in NVIDIA's documentation of vGPU types. Longer
// names come first.
var migSlices = []struct {
	model  string
	slices int
}{
	{"RTX PRO 6000", 4}, {"RTX PRO 5000", 2}, {"RTX PRO 4500", 2}, {"A30", 4},
	{"A100", 7}, {"A800", 7}, {"H100", 7}, {"H800", 7}, {"H200", 7}, {"H20", 7}, {"B200", 7}, {"B300", 7}, {"GH200", 7},
}

// Share returns an instance's share of its GPU: for a MIG instance its compute slices out of the GPU's, for one of n
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
