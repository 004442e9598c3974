//go:build linux && cgo

package nvml

import (
	"math"
	"testing"

	"warpgauge/internal/testkit"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestConvert(t *testing.T) {
	nan := math.NaN()
	f := func(c convert, want float64, in ...float64) {
		t.Helper()
		got := c.apply(in)
		testkit.ErrorIf(t, !cmp.Equal(got, want, cmpopts.EquateNaNs(), cmpopts.EquateApprox(1e-12, 0)), "conversion %q of %v: got %v, want %v", c, in, got, want)
	}
	f(asIs, 5, 5)
	f(asIs, 0, 0)
	f(asIs, 12, 5, 7)
	f(asIs, nan, 5, nan)
	f(unlessZero, 5, 5)
	f(unlessZero, nan, 0)
	f(unlessNone, 3, 3, 10)
	f(unlessNone, 0, 0, 10)
	f(unlessNone, nan, 0, 0)
	f(unlessNone, nan, 3, nan)
	f(usedShare, 0.25, 100, 20, 20)
	f(usedShare, 0.2, 100, 20)
	f(usedShare, nan, 100, 20, 100)
	f(usedShare, nan, 0, 0)
	f(usedShare, nan, 100, nan, 20)
	f(asCapability, 8<<16|9, 8, 9)
	f(asPState, 8, 8)
	f(asPState, 0, 0)
	f(asPState, nan, 32)
	f(asComputeMode, 0, 0)
	f(asComputeMode, 1, 2)
	f(asComputeMode, 2, 3)
	f(asFabricStatus, 0, 0, 0)
	f(asFabricStatus, 2, 2, 999)
	f(asFabricStatus, 3, 3, 0)
	f(asFabricStatus, 4, 3, 5)
	f(asFabricStatus, 5, 9, 0)
	f(asFabricStatus, nan, nan, 0)
	f(asFabricError, nan, 2, 5)
	f(asFabricError, 0, 3, 0)
	f(asFabricError, -11, 3, 10)
	f(asFabricError, -8, 3, 999)
	f(asFabricError, nan, nan, nan)
	f(asBitErrors, 0, 15<<8|255)
	f(asBitErrors, 15e-9, 15<<8|9)
	f(asBitErrors, 0, 0<<8|12)
	f(asBitErrors, 3e-15, 3<<8|15)
	f(asBitErrors, nan, nan)
	f(worstBitErrors, 15e-9, 3<<8|15, 15<<8|9)
	f(worstBitErrors, nan, 3<<8|15, nan)
	f(lowest, 0, 1, 0, 1)
}
