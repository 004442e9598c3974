//go:build linux && cgo

package nvml

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// tabled returns the names of all fields of the table.
func tabled() []string {
	var out []string
	for _, d := range field.All() {
		if len(byField()[d.ID]) > 0 {
			out = append(out, d.Name)
		}
	}
	return out
}

func csvOf(names []string) string { return strings.Join(names, ", gauge, x\n") + ", gauge, x\n" }

// taken is a source with its row.
type taken struct {
	collector.Source
	row []float64
	due []bool
}

// openReadings opens the collector on a node and returns one row per GPU.
func openReadings(t testing.TB, n *nvmltest.Node, names ...string) []*taken {
	t.Helper()
	list := listOf(t, csvOf(names))
	testkit.FatalIf(t, len(list.Fields) != len(names), "a list of %d names has %d fields", len(names), len(list.Fields))
	_, sources := openList(t, at(n), list)
	out := make([]*taken, len(sources))
	for i, s := range sources {
		out[i] = &taken{s, slices.Repeat([]float64{nan}, len(s.Columns())), make([]bool, len(s.Columns()))}
	}
	return out
}

// sample samples the named fields, or all fields if none is named.
func (s *taken) sample(names ...string) error {
	for i, c := range s.Columns() {
		d, _ := field.ByID(c.Field)
		s.due[i] = len(names) == 0 || slices.Contains(names, d.Name)
	}
	return s.Sample(s.row, s.due)
}

// want samples and compares values of a device. A field without a column is -1, which is not a possible value here.
func (s *taken) want(t *testing.T, when string, device int, want map[string]float64) {
	t.Helper()
	err := s.sample()
	testkit.FatalIf(t, err != nil, "%s: %v", when, err)
	got := map[string]float64{}
	for name := range want {
		got[name] = noColumn
		for i, c := range s.Columns() {
			if d, _ := field.ByID(c.Field); d.Name == name && c.Device == device {
				got[name] = s.row[i]
			}
		}
	}
	testkit.Equal(t, when, want, got, cmpopts.EquateNaNs(), cmpopts.EquateApprox(1e-9, 0))
}

const noColumn = -1

var nan = math.NaN()

// TestReadings compares a board's values, in the fields' units, with the simulated driver's, in NVML's units.
func TestReadings(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 2, Lines: []string{
		"gpu 1 power 123456", "gpu 1 power.instant 234567", "gpu 1 power.limit 650500", "gpu 1 energy 987654321012",
		"gpu 1 util.gpu 77", "gpu 1 util.memory 33", "gpu 1 util.encoder 5", "gpu 1 util.decoder 6",
		"gpu 1 memory.total 85899345920", "gpu 1 memory.reserved 5368709120", "gpu 1 memory.used 40265318399",
		"gpu 1 clock[1] 1755", "gpu 1 clock[2] 2619", "gpu 1 temperature 61", "gpu 1 temperature.memory 71", "gpu 1 margin -3",
		"gpu 1 ecc[0] 11", "gpu 1 ecc[1] 12", "gpu 1 ecc[2] 13", "gpu 1 ecc[3] 14", "gpu 1 ecc.at[4] 21", "gpu 1 ecc.at[31] 28",
		"gpu 1 remapped[0] 1", "gpu 1 remapped[1] 2", "gpu 1 remapped[2] 1", "gpu 1 remapped[3] 0",
		"gpu 1 remap.banks[0] 600", "gpu 1 remap.banks[4] 3", "gpu 1 ecc.sram[11] 1",
		"gpu 1 violation[0] 1500000000", "gpu 1 compute.mode 3", "gpu 1 pcie.replay 9", "gpu 1 reasons 0x44",
		"gpu 1 fabric.state 3", "gpu 1 fabric.status 999", "gpu 1 fabric.clique 7", "gpu 1 fabric.summary 2",
		"gpu 1 nvlink.crc.flit[3] 4", "gpu 1 nvlink.crc.flit[17] 5", "gpu 1 grid.supported 1", "gpu 1 grid.licensed 1",
		"process 1 pid=100", "process 1 pid=101", "gpu 1 util.jpg 12", "gpu 1 util.ofa 34", "gpu 1 nvlink.five 0", "gpu 1 nvlink.five[0] 100", "gpu 1 nvlink.five[17] 11", "gpu 1 nvlink.fec 0", "gpu 1 nvlink.fec[557] 9",
	}})
	sources := openReadings(t, n, tabled()...)
	sources[1].want(t, "GPU 1", 0, map[string]float64{
		"DCGM_FI_DEV_POWER_USAGE": 123.456, "DCGM_FI_DEV_POWER_USAGE_INSTANT": 234.567, "DCGM_FI_DEV_POWER_MGMT_LIMIT": 650.5,
		"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 987654321012,
		"DCGM_FI_DEV_GPU_UTIL":                 77, "DCGM_FI_DEV_MEM_COPY_UTIL": 33, "DCGM_FI_DEV_ENC_UTIL": 5, "DCGM_FI_DEV_DEC_UTIL": 6,
		"DCGM_FI_DEV_FB_TOTAL": 81920, "DCGM_FI_DEV_FB_RESERVED": 5120, "DCGM_FI_DEV_FB_USED": 38399, "DCGM_FI_DEV_FB_FREE": 38400,
		"DCGM_FI_DEV_FB_USED_PERCENT": 40265318399.0 / (85899345920 - 5368709120),
		"DCGM_FI_DEV_SM_CLOCK":        1755, "DCGM_FI_DEV_MEM_CLOCK": 2619,
		"DCGM_FI_DEV_GPU_TEMP": 61, "DCGM_FI_DEV_MEMORY_TEMP": 71, "DCGM_FI_DEV_GPU_TEMP_LIMIT": -3,
		"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": 11, "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": 12, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 13, "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": 14,
		"DCGM_FI_DEV_ECC_SBE_VOL_L2": 21, "DCGM_FI_DEV_ECC_DBE_AGG_SRM": 28,
		"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": 1, "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": 2, "DCGM_FI_DEV_ROW_REMAP_PENDING": 1, "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
		"DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_MAX": 600, "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_NONE": 3, "DCGM_FI_DEV_THRESHOLD_SRM": 1,
		"DCGM_FI_DEV_POWER_VIOLATION": 1500000000, "DCGM_FI_DEV_COMPUTE_MODE": 2, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 9, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": 0x44,
		"DCGM_FI_DEV_FABRIC_MANAGER_STATUS": 4, "DCGM_FI_DEV_FABRIC_MANAGER_ERROR_CODE": -8, "DCGM_FI_DEV_FABRIC_CLIQUE_ID": 7, "DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY": 2,
		"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L3": 4, "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L17": 5, "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": 9,
		"DCGM_FI_DEV_NVLINK_ERROR_DL_CRC": 9, "DCGM_FI_DEV_VGPU_LICENSE_STATUS": 1,
		"DCGM_FI_DEV_CUDA_COMPUTE_CAPABILITY": 9 << 16, "DCGM_FI_DEV_COUNT": 2, "DCGM_FI_DEV_NVML_INDEX": 1, "DCGM_FI_DEV_GPM_SUPPORT": 1,
		"DCGM_FI_DEV_ECC_CURRENT": 1, "DCGM_FI_DEV_PERSISTENCE_MODE": 1, "DCGM_FI_DEV_PCI_COMBINED_ID": 0x233010de,
		"DCGM_FI_DEV_MAX_SM_CLOCK": 1980, "DCGM_FI_DEV_SHUTDOWN_TEMP": 92, "DCGM_FI_DEV_PCIE_LINK_GEN": 5, "DCGM_FI_DEV_PCIE_LINK_WIDTH": 16,
		"nvidia_gpu_jpeg_busy_ratio": 0.12, "nvidia_gpu_ofa_busy_ratio": 0.34, "nvidia_gpu_compute_processes": 2, "nvidia_gpu_graphics_processes": 0,
		"DCGM_FI_DEV_NVLINK_COUNT_TX_PACKETS": 111, "DCGM_FI_DEV_NVLINK_COUNT_TX_BYTES": 0, "DCGM_FI_DEV_NVLINK_COUNT_FEC_HISTORY_15": 9,
		"DCGM_FI_DEV_FAN_SPEED": noColumn, // no fan
		"DCGM_FI_DEV_AUTOBOOST": noColumn, // not on this board
	})
}

// TestRates checks that counters become rates by the driver's own timestamps.
func TestRates(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1, Lines: []string{
		"gpu * nvlink.tx 1000 * (i + 1) * t", "gpu * nvlink.rx 0", "gpu * pcie.tx.bytes 5000000 * t", "gpu * gpm.supported 0", "gpu * nvlink.raw.tx 10 * t",
	}})
	n.Freeze(1000)
	const total = "DCGM_FI_PROF_PCIE_TX_BYTES_TOTAL"
	want := map[string]float64{
		"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": 171, "DCGM_FI_DEV_NVLINK_BANDWIDTH_L2": 3, "DCGM_FI_DEV_NVLINK_TX_BANDWIDTH_L17": 18, "DCGM_FI_DEV_NVLINK_RX_BANDWIDTH_TOTAL": 0,
		"DCGM_FI_DEV_PCIE_TX_THROUGHPUT": 5000, "DCGM_FI_PROF_PCIE_TX_BYTES": 5000000, total: 5000000 * 1000.5, "DCGM_FI_PROF_NVLINK_TX_BYTES": 18 * 10 * 1024,
	}
	s := openReadings(t, n, slices.Sorted(maps.Keys(want))...)[0]
	n.Advance(500 * time.Millisecond)
	s.want(t, "first sample", 0, want)
	s.want(t, "not refreshed since", 0, want)
	n.Advance(250 * time.Millisecond)
	want[total] = 5000000 * 1000.75
	s.want(t, "later", 0, want)
	n.Set(0, "nvlink.tx", "500")
	n.Advance(250 * time.Millisecond)
	want[total], want["DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"], want["DCGM_FI_DEV_NVLINK_BANDWIDTH_L2"], want["DCGM_FI_DEV_NVLINK_TX_BANDWIDTH_L17"] = 5000000*1001, nan, nan, nan
	s.want(t, "a reset", 0, want)
}

// TestUnsupported checks that fields that the board or driver lacks have no column and cause no calls on a tick.
func TestUnsupported(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{Preset: "gtx1080"})
	s := openReadings(t, n, tabled()...)[0]
	s.want(t, "GTX 1080", 0, map[string]float64{
		"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": noColumn, "DCGM_FI_DEV_MEMORY_TEMP": noColumn,
		"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": noColumn, "DCGM_FI_DEV_POWER_VIOLATION": noColumn, "DCGM_FI_DEV_MIG_MODE": noColumn, "DCGM_FI_DEV_FABRIC_MANAGER_STATUS": noColumn,
		"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": noColumn,
	})
	v := s.value("DCGM_FI_DEV_FAN_SPEED")
	testkit.ErrorIf(t, v < 27 || v > 77, "fan speed: %v", v)
	n.ResetCalls()
	must(t, s.sample())
	for _, f := range []string{"nvmlDeviceGetEccMode", "nvmlDeviceGetNvLinkErrorCounter", "nvmlDeviceGetMemoryErrorCounter", "nvmlDeviceGetMigMode"} {
		testkit.Equal(t, fmt.Sprintf("calls of %s a tick on a board that has none of it", f), uint64(0), n.Calls(f))
	}
}

// partOf returns the part of a type in a source. It fails without one.
func partOf[T part](s collector.Source) (out T) {
	switch t := s.(type) {
	case *taken:
		s = t.Source
	case *processRig:
		s = t.Source
	}
	for _, p := range s.(*source).parts {
		if found, ok := p.part.(T); ok {
			out = found
		}
	}
	return out
}

// value returns the newest value of a GPU's field, -1 if it has no column.
func (s *taken) value(name string) float64 {
	for i, c := range s.Columns() {
		if d, _ := field.ByID(c.Field); d.Name == name && c.Device == 0 {
			return s.row[i]
		}
	}
	return noColumn
}

// TestOneCallForMany checks that fields of one call share it, that due field values are read together, and that
// nothing else is read.
func TestOneCallForMany(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1})
	names := []string{
		"DCGM_FI_DEV_FB_TOTAL", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_RESERVED", "DCGM_FI_DEV_FB_USED_PERCENT",
		"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_DEV_BAR1_USED", "DCGM_FI_DEV_BAR1_FREE",
		"DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
		"DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN", "DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX",
	}
	s := openReadings(t, n, names...)[0]
	f := func(want map[string]uint64, due ...string) {
		t.Helper()
		n.ResetCalls()
		must(t, s.sample(due...))
		got := map[string]uint64{}
		for name, calls := range n.AllCalls() {
			// Each sample reads the event set.
			if calls > 0 && name != "nvmlEventSetWait_v2" {
				got[name] = calls
			}
		}
		equal(t, want, got, "calls for %q", due)
	}
	f(map[string]uint64{
		"nvmlDeviceGetMemoryInfo_v2": 1, "nvmlDeviceGetUtilizationRates": 1, "nvmlDeviceGetBAR1MemoryInfo": 1, "nvmlDeviceGetFieldValues": 1,
		"nvmlDeviceGetPowerManagementLimitConstraints": 1,
	})
	f(map[string]uint64{"nvmlDeviceGetMemoryInfo_v2": 1}, "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_USED_PERCENT")
	f(map[string]uint64{"nvmlDeviceGetFieldValues": 1}, "DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL")
	f(map[string]uint64{}, "none")
	var costs []string
	for _, c := range s.Source.(collector.CallMeter).Calls() {
		if c.Count > 0 && c.Time > 0 && c.Call != "nvmlEventSetWait_v2" {
			costs = append(costs, c.Call)
		}
	}
	slices.Sort(costs)
	want := []string{"nvmlDeviceGetBAR1MemoryInfo", "nvmlDeviceGetFieldValues", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetPowerManagementLimitConstraints", "nvmlDeviceGetUtilizationRates"}
	equal(t, want, costs, "costs")
}

// TestOwnError checks that a failed call only costs its own values.
func TestOwnError(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1, Lines: []string{"gpu * power 200000", "gpu * temperature 50", "gpu * temperature.memory 60", "gpu * energy 5000", "gpu * util.gpu 40"}})
	s := openReadings(t, n, "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_GPU_UTIL")[0]
	all := map[string]float64{
		"DCGM_FI_DEV_POWER_USAGE": 200, "DCGM_FI_DEV_GPU_TEMP": 50, "DCGM_FI_DEV_MEMORY_TEMP": 60, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 5000, "DCGM_FI_DEV_GPU_UTIL": 40,
	}
	without := func(names ...string) map[string]float64 {
		out := map[string]float64{}
		for k, v := range all {
			out[k] = v
			if slices.Contains(names, k) {
				out[k] = nan
			}
		}
		return out
	}
	s.want(t, "all well", 0, all)
	for _, code := range []string{"UNKNOWN", "NOT_SUPPORTED", "TIMEOUT", "NO_PERMISSION", "IN_USE", "INSUFFICIENT_POWER", "CORRUPTED_INFOROM", "998"} {
		n.Return(0, "nvmlDeviceGetPowerUsage", code)
		s.want(t, code, 0, without("DCGM_FI_DEV_POWER_USAGE"))
		n.Return(0, "nvmlDeviceGetPowerUsage", "SUCCESS")
		n.Return(0, "nvmlDeviceGetFieldValues", code)
		s.want(t, "fields: "+code, 0, without("DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"))
		n.Return(0, "nvmlDeviceGetFieldValues", "SUCCESS")
		n.Set(0, "temperature.memory", "!"+code)
		s.want(t, "one field: "+code, 0, without("DCGM_FI_DEV_MEMORY_TEMP"))
		n.Unset(0, "temperature.memory")
	}
	s.want(t, "well again", 0, all)
}

// TestWholeError checks that a failure of a GPU or the driver is an error of the source, at the first call, and that
// the other sources keep running.
func TestWholeError(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 2})
	sources := openReadings(t, n, "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_MEMORY_TEMP")
	f := func(code string, want error, calls uint64) {
		t.Helper()
		n.Return(0, nvmltest.Every, code)
		n.ResetCalls()
		err := sources[0].sample()
		testkit.ErrorIf(t, err == nil || want != nil && !errors.Is(err, want), "%s: got %v, want %v", code, err, want)
		testkit.Equal(t, fmt.Sprintf("%s: calls", code), calls, n.Calls("nvmlDeviceGetPowerUsage")+n.Calls("nvmlDeviceGetTemperature")+n.Calls("nvmlDeviceGetFieldValues"))
		if err := sources[1].sample(); err != nil {
			t.Errorf("%s: the other GPU: %v", code, err)
		}
		n.Clear(0)
		if err := sources[0].sample(); err != nil {
			t.Errorf("after %s: %v", code, err)
		}
	}
	f("GPU_IS_LOST", collector.ErrDeviceLost, 1)
	f("RESET_REQUIRED", collector.ErrDeviceLost, 1)
	f("UNINITIALIZED", collector.ErrOutdated, 1)
	f("DRIVER_NOT_LOADED", collector.ErrOutdated, 1)
	f("LIB_RM_VERSION_MISMATCH", collector.ErrOutdated, 1)
	f("UNKNOWN", nil, 3)
	f("TIMEOUT", nil, 3)
	f("IRQ_ISSUE", nil, 3)
}
