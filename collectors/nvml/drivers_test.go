//go:build linux && cgo

package nvml

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/collectors/internal/simulated"
	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/programtest"
	"warpgauge/pkg/field"
)

// headerFields holds testdata/nvml-fields.csv: the numbers of fields by driver branch, from NVIDIA's own headers.
type headerFields struct {
	branches []int
	names    []string
	numbers  map[string][]int // by branch; 0 if its header lacks the field
}

func readHeaderFields(t *testing.T) headerFields {
	t.Helper()
	f, err := os.Open("testdata/nvml-fields.csv")
	must(t, err)
	defer f.Close()
	r := csv.NewReader(f)
	r.Comment = '#'
	rows := testkit.Get(r.ReadAll())(t)
	out := headerFields{numbers: map[string][]int{}}
	for _, row := range rows[1:] { // the first row holds the CUDA releases
		numbers := make([]int, len(row)-1)
		for i, cell := range row[1:] {
			if cell != "" {
				numbers[i] = testkit.Get(strconv.Atoi(cell))(t)
			}
		}
		if row[0] == "driver" {
			out.branches = numbers
			continue
		}
		out.names = append(out.names, row[0])
		out.numbers[row[0]] = numbers
	}
	return out
}

// TestFieldsByDriver compares the numbers of fields with the headers of each CUDA release.
func TestFieldsByDriver(t *testing.T) {
	h := readHeaderFields(t)
	last := len(h.branches) - 1
	known := map[uint32]bool{}
	for _, name := range h.names {
		id := uint32(h.numbers[name][last])
		known[id] = true
		for i, branch := range h.branches {
			got, ok := fieldOf(branch, id)
			want := h.numbers[name][i]
			switch {
			case want != 0 && (!ok || got != uint32(want)):
				t.Errorf("%s in driver %d: field %d, %t; want %d", name, branch, got, ok, want)
			case want == 0 && ok && id >= firstMoving:
				t.Errorf("%s in driver %d: field %d, and there is none", name, branch, got)
			}
		}
	}
	for _, r := range allReadings() {
		for _, term := range r.terms {
			if term.call == getFieldValues && !known[term.arg[0]] {
				t.Errorf("field %d, for %d, is not in testdata/nvml-fields.csv", term.arg[0], r.id)
			}
		}
	}
	for _, branch := range []int{0, 470, 550, 571, 574} {
		for _, id := range []uint32{251, 268, 269, 273, 301} {
			got, ok := fieldOf(branch, id)
			testkit.ErrorIf(t, ok, "driver %d, of which nothing is known, has field %d for %d", branch, got, id)
		}
		got, ok := fieldOf(branch, 250)
		testkit.ErrorIf(t, !ok || got != 250, "driver %d: field %d, %t; want 250", branch, got, ok)
	}
	for version, want := range map[string]int{"580.65.06": 580, "575": 575, "": 0, "abc": 0, "57x.1": 0} {
		testkit.Equal(t, "branch of "+version, want, branchOf(version))
	}
}

// TestMovedFields checks on simulated drivers of each branch that each field reads the right number, also after the
// driver was replaced by another branch.
func TestMovedFields(t *testing.T) {
	lines := []string{"gpu * smoothing 100 + i", "gpu * violation[6] 600", "gpu * violation[7] 700", "gpu * violation[8] 800"}
	names := []string{"DCGM_FI_DEV_PWR_SMOOTHING_ENABLED", "DCGM_FI_DEV_PWR_SMOOTHING_ADMIN_OVERRIDE_RAMP_DOWN_HYST_VAL",
		"DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS", "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS"}
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1, Lines: lines})
	for _, driver := range []struct {
		version   string
		fields    int // NVML_FI_MAX
		throttle  bool
		smoothing bool
	}{{"570.124.06", 269, false, true}, {"580.65.06", 274, true, true}, {"610.43.02", 303, true, true}, {"560.35.03", 303, false, false}, {"unreadable", 303, false, false}} {
		n.Line("node driver %s", driver.version)
		n.Line("node fields %d", driver.fields)
		want := map[string]float64{names[0]: noColumn, names[1]: noColumn, names[2]: noColumn, names[3]: noColumn}
		if driver.smoothing {
			want[names[0]], want[names[1]] = 100, 117
		}
		if driver.throttle {
			want[names[2]], want[names[3]] = 600, 800
		}
		openReadings(t, n, append(names, "DCGM_FI_DEV_GPU_TEMP")...)[0].want(t, "driver "+driver.version, 0, want)
	}
}

func sizeOf[T any]() int { return int(reflect.TypeFor[T]().Size()) }

// TestHeader compiles assertions about this package's structs, constants and tables against go-nvml's nvml.h.
func TestHeader(t *testing.T) {
	programtest.Find(t, "cc")
	dir := testkit.Get(simulated.ModuleFolder("github.com/NVIDIA/go-nvml", "pkg/nvml"))(t)
	var c strings.Builder
	c.WriteString("#include <nvml.h>\n#include <stddef.h>\n")
	is := func(expression string, want any) {
		fmt.Fprintf(&c, "_Static_assert((long long)(%s) == %d, \"%s is not %d\");\n", expression, want, expression, want)
	}
	h := readHeaderFields(t)
	for _, name := range h.names {
		is(name, h.numbers[name][len(h.branches)-1])
	}
	value, _ := reflect.TypeFor[nvml.FieldValue]().FieldByName("Value")
	for name, v := range map[string]int{
		"NVML_CLOCK_GRAPHICS": clockGraphics, "NVML_CLOCK_SM": clockSM, "NVML_CLOCK_MEM": clockMemory, "NVML_CLOCK_VIDEO": clockVideo,
		"NVML_TEMPERATURE_GPU":                sensorGPU,
		"NVML_TEMPERATURE_THRESHOLD_SHUTDOWN": thresholdShutdown, "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN": thresholdSlowdown,
		"NVML_TEMPERATURE_THRESHOLD_MEM_MAX": thresholdMem, "NVML_TEMPERATURE_THRESHOLD_GPU_MAX": thresholdGPU,
		"NVML_AFFINITY_SCOPE_NODE":         scopeNUMANode,
		"NVML_MEMORY_ERROR_TYPE_CORRECTED": corrected, "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": uncorrected,
		"NVML_VOLATILE_ECC": volatileECC, "NVML_AGGREGATE_ECC": aggregate,
		"NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS": singleBitPages,
		"NVML_MEMORY_LOCATION_L1_CACHE":                             0, "NVML_MEMORY_LOCATION_DRAM": 2, "NVML_MEMORY_LOCATION_CBU": 6, "NVML_MEMORY_LOCATION_SRAM": 7,
		"NVML_NVLINK_ERROR_DL_REPLAY": linkReplay, "NVML_NVLINK_ERROR_DL_RECOVERY": linkRecovery,
		"NVML_NVLINK_ERROR_DL_CRC_FLIT": linkCRCFlit, "NVML_NVLINK_ERROR_DL_CRC_DATA": linkCRCData,
		"NVML_NVLINK_MAX_LINKS": maxLinks, "NVML_PSTATE_UNKNOWN": unknownPState, "NVML_GPU_FABRIC_STATE_COMPLETED": fabricCompleted,
		"NVML_COMPUTEMODE_PROHIBITED": 2, "NVML_COMPUTEMODE_EXCLUSIVE_PROCESS": 3, "NVML_INIT_FLAG_NO_GPUS": initNoGPUs,
		"NVML_PCIE_UTIL_TX_BYTES": 0, "NVML_PCIE_UTIL_RX_BYTES": 1, "(unsigned)NVML_VALUE_NOT_AVAILABLE": math.MaxUint32,
		"NVML_VALUE_TYPE_DOUBLE": int(nvml.VALUE_TYPE_DOUBLE), "NVML_VALUE_TYPE_UNSIGNED_LONG_LONG": int(nvml.VALUE_TYPE_UNSIGNED_LONG_LONG),
		"nvmlEventTypeXidCriticalError": nvml.EventTypeXidCriticalError, "nvmlEventMigConfigChange": nvml.EventMigConfigChange,
		"NVML_ERROR_GPU_IS_LOST": int(nvml.ERROR_GPU_IS_LOST), "NVML_ERROR_RESET_REQUIRED": int(nvml.ERROR_RESET_REQUIRED), "NVML_ERROR_UNKNOWN": int(nvml.ERROR_UNKNOWN),

		"sizeof(nvmlFieldValue_t)": sizeOf[nvml.FieldValue](), "offsetof(nvmlFieldValue_t, value)": int(value.Offset),
		"sizeof(nvmlPlatformInfo_v2_t)":             sizeOf[nvml.PlatformInfo](),
		"sizeof(nvmlProcessesUtilizationInfo_v1_t)": 24, "sizeof(nvmlProcessInfo_v2_t)": infoSize, "sizeof(nvmlProcessInfo_t)": infoSize,
		"offsetof(nvmlProcessInfo_t, usedGpuMemory)": infoMemory, "offsetof(nvmlProcessInfo_t, gpuInstanceId)": infoInstance,
		"sizeof(nvmlProcessUtilizationInfo_v1_t)": sampleSize, "offsetof(nvmlProcessUtilizationInfo_v1_t, pid)": samplePID, "offsetof(nvmlProcessUtilizationInfo_v1_t, smUtil)": sampleSM,
	} {
		is(name, v)
	}
	for id, metric := range map[field.ID]string{
		1001: "GRAPHICS_UTIL", 1002: "SM_UTIL", 1003: "SM_OCCUPANCY", 1004: "ANY_TENSOR_UTIL", 1005: "DRAM_BW_UTIL", 1006: "FP64_UTIL", 1007: "FP32_UTIL", 1008: "FP16_UTIL",
		1009: "PCIE_TX_PER_SEC", 1010: "PCIE_RX_PER_SEC", 1011: "NVLINK_TOTAL_TX_PER_SEC", 1012: "NVLINK_TOTAL_RX_PER_SEC", 1013: "IMMA_TENSOR_UTIL", 1014: "HMMA_TENSOR_UTIL",
		1015: "DFMA_TENSOR_UTIL", 1016: "INTEGER_UTIL", 1017: "NVDEC_0_UTIL", 1024: "NVDEC_7_UTIL", 1025: "NVJPG_0_UTIL", 1032: "NVJPG_7_UTIL", 1033: "NVOFA_0_UTIL", 1034: "NVOFA_1_UTIL",
		1040: "NVLINK_L0_TX_PER_SEC", 1041: "NVLINK_L0_RX_PER_SEC", 1074: "NVLINK_L17_TX_PER_SEC", 1075: "NVLINK_L17_RX_PER_SEC",
		1076: "C2C_TOTAL_TX_PER_SEC", 1077: "C2C_DATA_TX_PER_SEC", 1078: "C2C_TOTAL_RX_PER_SEC", 1079: "C2C_DATA_RX_PER_SEC",
	} {
		p, ok := profilings()[id]
		testkit.ErrorIf(t, !ok, "no metric for field %d", id)
		is("NVML_GPM_METRIC_"+metric, p.metric)
	}
	tx := profilings()[1532]
	for _, link := range []int{0, 17, 18, maxLinks - 1} {
		is(fmt.Sprintf("NVML_GPM_METRIC_NVLINK_L%d_TX_PER_SEC", link), tx.metricOf(link))
	}
	file := filepath.Join(t.TempDir(), "header.c")
	must(t, os.WriteFile(file, []byte(c.String()), 0o600))
	out, err := exec.CommandContext(t.Context(), "cc", "-fsyntax-only", "-Wno-deprecated-declarations", "-I", dir, file).CombinedOutput()
	testkit.ErrorIf(t, err != nil, "%v\n%s", err, out)
}
