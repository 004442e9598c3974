//go:build linux && cgo

package nvml

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"warpgauge/internal/testkit"
)

// TestDecode checks that invalid field values do not become readings.
func TestDecode(t *testing.T) {
	f := func(what string, kind nvml.ValueType, bits uint64, want float64, wantWide bool) {
		t.Helper()
		v := nvml.FieldValue{ValueType: uint32(kind)}
		binary.NativeEndian.PutUint64(v.Value[:], bits)
		got, wide := decode(&v)
		testkit.ErrorIf(t, got != want && !(math.IsNaN(got) && math.IsNaN(want)) || wide != wantWide, "%s: %v, %t; want %v, %t", what, got, wide, want, wantWide)
	}
	f("an integer with type double", nvml.VALUE_TYPE_DOUBLE, 57, 57, false)
	f("a double", nvml.VALUE_TYPE_DOUBLE, math.Float64bits(1e9), 1e9, false)
	f("not available, 64 bits", nvml.VALUE_TYPE_UNSIGNED_LONG_LONG, math.MaxUint64, nan, true)
	f("not available, 32 bits", nvml.VALUE_TYPE_UNSIGNED_INT, math.MaxUint32, nan, false)
	f("long", nvml.VALUE_TYPE_UNSIGNED_LONG, 1<<53, 1<<53, true)
	f("short", nvml.VALUE_TYPE_UNSIGNED_SHORT, 3, 3, false)
	f("signed", nvml.VALUE_TYPE_SIGNED_INT, math.MaxUint32, -1, false)
	f("signed long", nvml.VALUE_TYPE_SIGNED_LONG_LONG, 1, 1, true)
	f("unknown type", 9, 1, nan, false)
}

// TestOddCalls checks that invalid answers of calls do not become values.
func TestOddCalls(t *testing.T) {
	const none = math.MaxUint32
	h := &handle{Device: &mock.Device{
		GetClockInfoFunc: func(nvml.ClockType) (uint32, nvml.Return) { return none, nvml.SUCCESS },
		GetUtilizationRatesFunc: func() (nvml.Utilization, nvml.Return) {
			return nvml.Utilization{Gpu: 808530000, Memory: none}, nvml.SUCCESS
		},
		GetCurrentClocksThrottleReasonsFunc: func() (uint64, nvml.Return) { return math.MaxUint64, nvml.SUCCESS },
		ValidateInforomFunc:                 func() nvml.Return { return nvml.ERROR_CORRUPTED_INFOROM },
		GetCpuAffinityFunc: func(int) ([]uint, nvml.Return) {
			return []uint{math.MaxUint, 0xffffffff, 1 << 63, 0x8000000000000001}, nvml.SUCCESS
		},
		GetMemoryAffinityFunc: func(int, nvml.AffinityScope) ([]uint, nvml.Return) { return make([]uint, 2), nvml.SUCCESS },
	}}
	f := func(c *call, want ...float64) {
		t.Helper()
		oldest := (*c)[len(*c)-1]
		got := make([]float64, oldest.results)
		testkit.Equal(t, oldest.symbol, nvml.SUCCESS, oldest.ask(h, [3]uint32{}, got))
		equal(t, want, got, "%s", oldest.symbol)
	}
	f(getClockInfo, nan)
	f(getUtilization, 808530000, nan) // the sampler drops and counts implausible values
	f(getClockEventReasons, nan)
	f(getInforomValid, 0)
	f(getCPUAffinity, -1, 0xffffffff, math.MinInt64, nan)
	f(getMemoryAffinity, nan, nan, nan, nan) // an empty mask
}
