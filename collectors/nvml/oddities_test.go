//go:build linux && cgo

package nvml

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"warpgauge/pkg/field"
)

// libraryWith returns a library that has only these symbols.
func libraryWith(has ...string) *library {
	return &library{has: func(s string) bool { return slices.Contains(has, s) }}
}

// oddValues returns field values that a driver should not return.
func oddValues(all []nvml.FieldValue) nvml.Return {
	for i := range all {
		f := &all[i]
		set := func(kind nvml.ValueType, bits uint64) {
			f.ValueType, f.NvmlReturn, f.Timestamp = uint32(kind), uint32(nvml.SUCCESS), 1000000
			binary.NativeEndian.PutUint64(f.Value[:], bits)
		}
		switch f.FieldId {
		case 3: // unchanged: ECC is off
		case 82:
			set(nvml.VALUE_TYPE_DOUBLE, 57) // an integer with type double
		case 83:
			set(nvml.VALUE_TYPE_UNSIGNED_LONG_LONG, math.MaxUint64) // not available
		case 186:
			set(nvml.VALUE_TYPE_UNSIGNED_INT, math.MaxUint32) // not available
		case 143:
			set(nvml.VALUE_TYPE_UNSIGNED_SHORT, 3)
		case 142:
			set(nvml.VALUE_TYPE_SIGNED_INT, 4)
		case 145:
			set(nvml.VALUE_TYPE_SIGNED_LONG_LONG, 1)
		case 144:
			set(9, 1) // an unknown type
		case 74:
			set(nvml.VALUE_TYPE_DOUBLE, math.Float64bits(1e9)) // really a double
		case 75:
			set(nvml.VALUE_TYPE_UNSIGNED_LONG, 1<<53)
		case 76:
			set(nvml.VALUE_TYPE_UNSIGNED_LONG_LONG, 0)
			f.NvmlReturn = uint32(nvml.ERROR_UNKNOWN)
		case 197:
			set(nvml.VALUE_TYPE_UNSIGNED_INT, 5) // a 32-bit counter
		default:
			f.NvmlReturn = uint32(nvml.ERROR_INVALID_ARGUMENT) // unknown to this driver
		}
	}
	return nvml.SUCCESS
}

// oddDevice returns results that a driver should not return.
func oddDevice() device {
	const none = math.MaxUint32
	return &handle{
		lib: libraryWith("nvmlDeviceGetFieldValues", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetPerformanceState", "nvmlDeviceGetClockInfo",
			"nvmlDeviceGetMaxClockInfo", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetCurrentClocksThrottleReasons",
			"nvmlDeviceValidateInforom", "nvmlDeviceGetCpuAffinity", "nvmlDeviceGetMemoryAffinity", "nvmlDeviceGetMemoryInfo"),
		Device: &mock.Device{
			GetFieldValuesFunc:      oddValues,
			GetPowerUsageFunc:       func() (uint32, nvml.Return) { return 0, nvml.SUCCESS },
			GetPerformanceStateFunc: func() (nvml.Pstates, nvml.Return) { return nvml.PSTATE_UNKNOWN, nvml.SUCCESS },
			GetClockInfoFunc: func(c nvml.ClockType) (uint32, nvml.Return) {
				if c == nvml.CLOCK_SM {
					return 0, nvml.SUCCESS
				}
				return none, nvml.SUCCESS
			},
			GetMaxClockInfoFunc: func(nvml.ClockType) (uint32, nvml.Return) { return 0, nvml.SUCCESS },
			GetUtilizationRatesFunc: func() (nvml.Utilization, nvml.Return) {
				return nvml.Utilization{Gpu: 808530000, Memory: none}, nvml.SUCCESS
			},
			GetCurrentClocksThrottleReasonsFunc: func() (uint64, nvml.Return) { return math.MaxUint64, nvml.SUCCESS },
			ValidateInforomFunc:                 func() nvml.Return { return nvml.ERROR_CORRUPTED_INFOROM },
			GetCpuAffinityFunc: func(int) ([]uint, nvml.Return) {
				return []uint{math.MaxUint, 0xffffffff, 1 << 63, 0x8000000000000001}, nvml.SUCCESS
			},
			GetMemoryAffinityFunc: func(int, nvml.AffinityScope) ([]uint, nvml.Return) { return make([]uint, 2), nvml.SUCCESS },
			GetMemoryInfoFunc:     func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.SUCCESS },
		},
	}
}

// TestOddities checks that invalid answers of drivers do not become values.
func TestOddities(t *testing.T) {
	odd := oddDevice()
	var fields []field.Reading
	for _, name := range tabled() {
		d, _, _ := field.ByName(name)
		if d.ID != 201 && d.ID != 200 { // their fallback needs another function
			fields = append(fields, field.Reading{Desc: d})
		}
	}
	p, err := newReadings(odd, []target{{reader: odd, level: field.GPU}}, fields, nil, unexplained(), nil)
	must(t, err)
	defer p.close()
	got := map[string]float64{}
	for range 2 {
		row, err := sampleAllOf(p)
		must(t, err)
		for i, c := range p.columns() {
			d, _ := field.ByID(c.Field)
			got[d.Name] = row[i]
		}
	}
	want := map[string]float64{
		"DCGM_FI_DEV_MEMORY_TEMP":                         57,
		"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION":            nan,
		"DCGM_FI_DEV_POWER_USAGE_INSTANT":                 nan,
		"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS":         3,
		"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS":           4,
		"DCGM_FI_DEV_ROW_REMAP_FAILURE":                   1,
		"DCGM_FI_DEV_ROW_REMAP_PENDING":                   nan,
		"DCGM_FI_DEV_POWER_VIOLATION":                     1e9,
		"DCGM_FI_DEV_THERMAL_VIOLATION":                   1 << 53,
		"DCGM_FI_DEV_SYNC_BOOST_VIOLATION":                nan,
		"DCGM_FI_DEV_POWER_USAGE":                         nan,
		"DCGM_FI_DEV_PSTATE":                              nan,
		"DCGM_FI_DEV_SM_CLOCK":                            0, // gated: 0 is its actual speed
		"DCGM_FI_DEV_MEM_CLOCK":                           nan,
		"DCGM_FI_DEV_VIDEO_CLOCK":                         nan,
		"DCGM_FI_DEV_MAX_SM_CLOCK":                        nan,
		"DCGM_FI_DEV_MAX_MEM_CLOCK":                       nan,
		"DCGM_FI_DEV_MAX_VIDEO_CLOCK":                     nan,
		"DCGM_FI_DEV_GPU_UTIL":                            808530000, // the sampler drops and counts implausible values
		"DCGM_FI_DEV_MEM_COPY_UTIL":                       nan,
		"DCGM_FI_DEV_CLOCKS_EVENT_REASONS":                nan,
		"DCGM_FI_DEV_INFOROM_CONFIG_VALID":                0,
		"DCGM_FI_DEV_CPU_AFFINITY_0":                      -1,
		"DCGM_FI_DEV_CPU_AFFINITY_1":                      0xffffffff,
		"DCGM_FI_DEV_CPU_AFFINITY_2":                      math.MinInt64,
		"DCGM_FI_DEV_CPU_AFFINITY_3":                      nan,
		"DCGM_FI_DEV_MEM_AFFINITY_0":                      nan, // an empty mask is blank
		"DCGM_FI_DEV_MEM_AFFINITY_1":                      nan,
		"DCGM_FI_DEV_MEM_AFFINITY_2":                      nan,
		"DCGM_FI_DEV_MEM_AFFINITY_3":                      nan,
		"DCGM_FI_DEV_FB_TOTAL":                            nan,
		"DCGM_FI_DEV_FB_FREE":                             nan,
		"DCGM_FI_DEV_FB_USED":                             nan,
		"DCGM_FI_DEV_FB_USED_PERCENT":                     nan,
		"DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS": 1e9,
		"DCGM_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST_NS":   nan,
	}
	equal(t, want, got, "")
}
