//go:build linux && cgo

package nvml

import (
	"slices"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/captures"
)

// TestCapturedBrands checks that DCGM's brand names equal nvidia-smi's.
func TestCapturedBrands(t *testing.T) {
	seen := 0
	for _, b := range captures.NVIDIA(t) {
		brand := b.First("xml:product_brand")
		if brand == "" {
			continue
		}
		seen++
		testkit.ErrorIf(t, !slices.Contains(brandNames[:], brand), "%s: brand %q is not known (%s)", b.Name, brand, b.Source)
	}
	testkit.ErrorIf(t, seen < 10, "%d boards say their brand", seen)
}
