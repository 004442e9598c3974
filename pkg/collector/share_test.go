package collector_test

import (
	"fmt"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

func TestShare(t *testing.T) {
	for _, tt := range []struct {
		level          field.Level
		model, profile string
		partitions     int
		want           float64
	}{
		{field.Instance, "NVIDIA A100-SXM4-80GB", "1g.10gb", 7, 1. / 7},
		{field.Instance, "NVIDIA A100-SXM4-80GB", "1g.10gb+me", 1, 1. / 7},
		{field.Instance, "NVIDIA H100 80GB HBM3", "3g.40gb", 2, 3. / 7},
		{field.Instance, "NVIDIA H200 NVL", "7g.141gb", 1, 1},
		{field.Instance, "NVIDIA-GB200", "2g.47gb", 1, 2. / 7},
		{field.Instance, "NVIDIA A30", "1g.6gb", 4, 1. / 4},
		{field.Instance, "NVIDIA A30", "4g.24gb", 1, 1},
		{field.Instance, "NVIDIA RTX PRO 6000 Blackwell Server Edition", "1g.24gb+gfx", 1, 1. / 4},
		{field.Instance, "NVIDIA RTX PRO 5000 Blackwell", "1g.24gb", 1, 1. / 2},
		{field.Instance, "AMD Instinct MI300X", "cpx", 8, 1. / 8},
		{field.Instance, "AMD Instinct MI300A", "cpx", 6, 1. / 6}, // must not match "A30"
		{field.Instance, "AMD Instinct MI300X", "dpx", 2, 1. / 2},
		// Unknown shares.
		{field.Instance, "NVIDIA A30", "7g.40gb", 1, 0},
		{field.Instance, "NVIDIA of next year", "1g.10gb", 7, 0},
		{field.Instance, "NVIDIA A100-SXM4-80GB", "", 7, 0},
		{field.Instance, "NVIDIA A100-SXM4-80GB", "0g.10gb", 7, 0},
		{field.ComputeInstance, "NVIDIA A100-SXM4-80GB", "3g.40gb", 2, 0},
		{field.GPU, "NVIDIA A100-SXM4-80GB", "", 0, 0},
	} {
		d := collector.Device{Level: tt.level, Model: tt.model, Instance: collector.Instance{Profile: tt.profile}}
		testkit.Equal(t, fmt.Sprintf("%s of %s, one of %d", tt.profile, tt.model, tt.partitions), tt.want, d.Share(tt.partitions))
	}
}
