package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/config"
)

// TestVariablesOfChildren: no library's list of variables has a prefix that a secret's name could have.
func TestVariablesOfChildren(t *testing.T) {
	all := testkit.Get(vendors(&config.Config{}, time.Now(), zap.NewNop()))(t)
	for _, v := range all {
		for _, secret := range []string{"NVIDIA_SECRET=", "DCGM_TOKEN=", "NVML_TOKEN=", "KUBERNETES_TOKEN=", "ROCM_TOKEN=", "CUDA_TOKEN=", "AWS_TOKEN="} {
			if slices.ContainsFunc(v.Environment, func(p string) bool { return strings.HasPrefix(secret, p) }) {
				t.Errorf("children of %s get %s", v.Name, secret)
			}
		}
	}
}
