//go:build linux && cgo

package dcgm

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// healthWatch is one of DCGM's health systems for GPUs.
type healthWatch struct {
	system  uint32   // DCGM_HEALTH_WATCH_…
	name    string   // label health_watch
	reasons []uint32 // possible DCGM_FR_… (DcgmHealthWatch.cpp of DCGM 4.6 and older)
}

// healthAll is the system of incidents that belong to no other system: XIDs after which a GPU is unusable.
const healthAll = 0xffffffff

// healthWatches is in the order of dcgm_structs.h, without the systems of switches, adapters and IMEX domains.
var healthWatches = [...]healthWatch{
	{0x1, "PCIE", []uint32{3, 98, 101, 104, 107}},
	{0x2, "NVLINK", []uint32{13, 14, 33, 70, 71, 99, 101, 112, 119, 121, 122, 123}},
	{0x4, "PMU", nil},
	{0x8, "MCU", nil},
	{0x10, "MEM", []uint32{4, 5, 6, 7, 8, 52, 80, 81, 83, 84, 85, 101, 118, 131, 132}},
	{0x20, "SM", nil},
	{0x40, "INFOROM", []uint32{9, 101}},
	{0x80, "THERMAL", []uint32{10, 36, 40, 42, 43, 101}},
	{0x100, "POWER", []uint32{11, 12, 36, 43, 101}},
	{0x200, "DRIVER", []uint32{21, 23, 101, 125, 126, 127, 128}},
	{healthAll, "ALL", []uint32{81, 101, 120, 131}},
}

const (
	healthSystems = 0x3ff            // the bits of all systems except ALL
	healthKeep    = 10 * time.Minute // how long the engine keeps the data for its checks (DCGM's default)

	reasonNone    = 0 // DCGM_FR_OK
	reasonUnknown = 1 // DCGM_FR_UNKNOWN, for reasons without a column
)

// health supplies DCGM_EXP_GPU_HEALTH_STATUS. The reason is a label, so each watch of a GPU has one column per possible
// reason. One of the columns holds the result, and the others are blank.
type health struct {
	partBase
	engine  *engine
	group   handleID
	ids     []uint32 // the GPUs' IDs
	watches []boundHealth
	unknown map[uint32]bool // reasons without a column that were logged
}

// boundHealth is one watch of one GPU.
type boundHealth struct {
	reasons []uint32
	column  int // column of the first reason
	chosen  int // index into reasons
	result  int32
}

// newHealth makes the engine watch the health of a node's GPUs. It returns nil if the list does not have the field or
// the engine does not support it, which it records in refused.
func newHealth(e *engine, n *node, r *readings, list []field.Reading, refused refusals, o Options) (part, error) {
	gpus := n.byKind(kindGPU)
	asked := slices.IndexFunc(list, func(r field.Reading) bool { return r.Desc.ID == field.GPUHealth })
	if asked < 0 || len(gpus) == 0 {
		return nil, nil
	}
	h := &health{partBase: partBase{log: o.Log, blanks: &r.blanks}, engine: e, unknown: map[uint32]bool{}}
	h.cost.Call = "dcgmHealthCheck"
	var entities []entity
	for _, d := range gpus {
		entities = append(entities, n.entities[d])
		h.ids = append(h.ids, n.entities[d].id)
	}
	var err error
	if h.group, err = e.createGroup(entities); err != nil {
		return nil, fmt.Errorf("watch health: %w", err)
	}
	every := min(o.every(list[asked]), time.Minute) // most checks use the last minute
	switch err := e.watchHealth(h.group, healthSystems, every, healthKeep); {
	case unsupported(err):
		e.destroyGroup(h.group)
		refused[uint16(field.GPUHealth)], _ = errors.AsType[status](err)
		o.Log.Info("host engine cannot watch health; skipping the field", zap.String("field", "DCGM_EXP_GPU_HEALTH_STATUS"), zap.Error(err))
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("watch health: %w", err)
	}
	for _, d := range gpus {
		for _, w := range healthWatches {
			h.bind(d, w)
		}
	}
	return h, nil
}

// bind adds the columns of one watch of a GPU.
func (h *health) bind(device int, w healthWatch) {
	b := boundHealth{reasons: append([]uint32{reasonNone, reasonUnknown}, w.reasons...), column: len(h.cols)}
	for _, code := range b.reasons {
		h.cols = append(h.cols, collector.Column{Device: device, Field: field.GPUHealth, Labels: []collector.Label{
			{Name: "health_error_code", Value: errorName(code)}, {Name: "health_watch", Value: w.name},
		}})
	}
	h.watches = append(h.watches, b)
}

// sample checks health if it is due. Without an answer all watches are blank, because an unknown state is not healthy.
func (h *health) sample(row []float64, due []bool) error {
	if !slices.Contains(due, true) {
		return nil
	}
	var incidents []incident
	err := h.try("cannot read GPU health", func() (err error) {
		incidents, err = h.engine.health(h.group)
		return err
	})
	if err != nil {
		return err
	}
	h.chooseIncidents(incidents)
	for i := range h.watches {
		w := &h.watches[i]
		if h.failed {
			w.chosen = -1
		}
		collector.ChooseDue(row[w.column:][:len(w.reasons)], due[w.column:], w.chosen, float64(w.result), h.none)
	}
	return nil
}

// chooseIncidents selects the worst incident of each watch, or the last of equally bad ones, as dcgm-exporter does.
func (h *health) chooseIncidents(incidents []incident) {
	for i := range h.watches {
		h.watches[i].chosen, h.watches[i].result = 0, 0
	}
	for _, in := range incidents {
		w := h.watch(in)
		if w == nil || in.health <= 0 || in.health < w.result {
			continue
		}
		w.result = in.health
		w.chosen = slices.Index(w.reasons, in.code)
		if w.chosen >= 0 {
			continue
		}
		w.chosen = slices.Index(w.reasons, reasonUnknown)
		if !h.unknown[in.code] && len(h.unknown) < len(errorCodes) {
			h.unknown[in.code] = true
			h.log.Warn("health reason has no label; reporting DCGM_FR_UNKNOWN", zap.Uint32("device", in.entity.id),
				zap.String("field", errorName(in.code)), zap.String("err", in.text))
		}
	}
}

// watch returns the watch of an incident, or nil if these GPUs have no such watch.
func (h *health) watch(in incident) *boundHealth {
	if in.entity.kind != kindGPU {
		return nil
	}
	gpu := slices.Index(h.ids, in.entity.id)
	at := slices.IndexFunc(healthWatches[:], func(w healthWatch) bool { return w.system == in.system })
	if gpu < 0 || at < 0 {
		return nil
	}
	return &h.watches[gpu*len(healthWatches)+at]
}

// errorCodes names DCGM's error codes (dcgmError_t in dcgm_errors.h of DCGM 4.6) without "DCGM_FR_". Codes that DCGM 4
// renamed keep dcgm-exporter's names, because alerts match its labels. DCGM calls 10, 12 and 43 CLOCKS_EVENT_THERMAL,
// CLOCKS_EVENT_POWER and CLOCKS_EVENT_VIOLATION.
var errorCodes = [...]string{
	0:   "OK",
	1:   "UNKNOWN",
	2:   "UNRECOGNIZED",
	3:   "PCI_REPLAY_RATE",
	4:   "VOLATILE_DBE_DETECTED",
	5:   "VOLATILE_SBE_DETECTED",
	6:   "PENDING_PAGE_RETIREMENTS",
	7:   "RETIRED_PAGES_LIMIT",
	8:   "RETIRED_PAGES_DBE_LIMIT",
	9:   "CORRUPT_INFOROM",
	10:  "CLOCK_THROTTLE_THERMAL",
	11:  "POWER_UNREADABLE",
	12:  "CLOCK_THROTTLE_POWER",
	13:  "NVLINK_ERROR_THRESHOLD",
	14:  "NVLINK_DOWN",
	15:  "NVSWITCH_FATAL_ERROR",
	16:  "NVSWITCH_NON_FATAL_ERROR",
	17:  "NVSWITCH_DOWN",
	18:  "NO_ACCESS_TO_FILE",
	19:  "NVML_API",
	20:  "DEVICE_COUNT_MISMATCH",
	21:  "BAD_PARAMETER",
	22:  "CANNOT_OPEN_LIB",
	23:  "DENYLISTED_DRIVER",
	24:  "NVML_LIB_BAD",
	25:  "GRAPHICS_PROCESSES",
	26:  "HOSTENGINE_CONN",
	27:  "FIELD_QUERY",
	28:  "BAD_CUDA_ENV",
	29:  "PERSISTENCE_MODE",
	30:  "LOW_BANDWIDTH",
	31:  "HIGH_LATENCY",
	32:  "CANNOT_GET_FIELD_TAG",
	33:  "FIELD_VIOLATION",
	34:  "FIELD_THRESHOLD",
	35:  "FIELD_VIOLATION_DBL",
	36:  "FIELD_THRESHOLD_DBL",
	37:  "UNSUPPORTED_FIELD_TYPE",
	38:  "FIELD_THRESHOLD_TS",
	39:  "FIELD_THRESHOLD_TS_DBL",
	40:  "THERMAL_VIOLATIONS",
	41:  "THERMAL_VIOLATIONS_TS",
	42:  "TEMP_VIOLATION",
	43:  "THROTTLING_VIOLATION",
	44:  "INTERNAL",
	45:  "PCIE_GENERATION",
	46:  "PCIE_WIDTH",
	47:  "ABORTED",
	48:  "TEST_DISABLED",
	49:  "CANNOT_GET_STAT",
	50:  "STRESS_LEVEL",
	51:  "CUDA_API",
	52:  "FAULTY_MEMORY",
	53:  "CANNOT_SET_WATCHES",
	54:  "CUDA_UNBOUND",
	55:  "ECC_DISABLED",
	56:  "MEMORY_ALLOC",
	57:  "CUDA_DBE",
	58:  "MEMORY_MISMATCH",
	59:  "CUDA_DEVICE",
	60:  "ECC_UNSUPPORTED",
	61:  "ECC_PENDING",
	62:  "MEMORY_BANDWIDTH",
	63:  "TARGET_POWER",
	64:  "API_FAIL",
	65:  "API_FAIL_GPU",
	66:  "CUDA_CONTEXT",
	67:  "DCGM_API",
	68:  "CONCURRENT_GPUS",
	69:  "TOO_MANY_ERRORS",
	70:  "NVLINK_CRC_ERROR_THRESHOLD",
	71:  "NVLINK_ERROR_CRITICAL",
	72:  "ENFORCED_POWER_LIMIT",
	73:  "MEMORY_ALLOC_HOST",
	74:  "GPU_OP_MODE",
	75:  "NO_MEMORY_CLOCKS",
	76:  "NO_GRAPHICS_CLOCKS",
	77:  "HAD_TO_RESTORE_STATE",
	78:  "L1TAG_UNSUPPORTED",
	79:  "L1TAG_MISCOMPARE",
	80:  "ROW_REMAP_FAILURE",
	81:  "UNCONTAINED_ERROR",
	82:  "EMPTY_GPU_LIST",
	83:  "DBE_PENDING_PAGE_RETIREMENTS",
	84:  "UNCORRECTABLE_ROW_REMAP",
	85:  "PENDING_ROW_REMAP",
	86:  "BROKEN_P2P_MEMORY_DEVICE",
	87:  "BROKEN_P2P_WRITER_DEVICE",
	88:  "NVSWITCH_NVLINK_DOWN",
	89:  "EUD_BINARY_PERMISSIONS",
	90:  "EUD_NON_ROOT_USER",
	91:  "EUD_SPAWN_FAILURE",
	92:  "EUD_TIMEOUT",
	93:  "EUD_ZOMBIE",
	94:  "EUD_NON_ZERO_EXIT_CODE",
	95:  "EUD_TEST_FAILED",
	96:  "FILE_CREATE_PERMISSIONS",
	97:  "PAUSE_RESUME_FAILED",
	98:  "PCIE_H_REPLAY_VIOLATION",
	99:  "GPU_EXPECTED_NVLINKS_UP",
	100: "NVSWITCH_EXPECTED_NVLINKS_UP",
	101: "XID_ERROR",
	102: "SBE_VIOLATION",
	103: "DBE_VIOLATION",
	104: "PCIE_REPLAY_VIOLATION",
	105: "SBE_THRESHOLD_VIOLATION",
	106: "DBE_THRESHOLD_VIOLATION",
	107: "PCIE_REPLAY_THRESHOLD_VIOLATION",
	108: "CUDA_FM_NOT_INITIALIZED",
	109: "SXID_ERROR",
	110: "GFLOPS_THRESHOLD_VIOLATION",
	111: "NAN_VALUE",
	112: "FABRIC_MANAGER_TRAINING_ERROR",
	113: "BROKEN_P2P_PCIE_MEMORY_DEVICE",
	114: "BROKEN_P2P_PCIE_WRITER_DEVICE",
	115: "BROKEN_P2P_NVLINK_MEMORY_DEVICE",
	116: "BROKEN_P2P_NVLINK_WRITER_DEVICE",
	117: "TEST_SKIPPED",
	118: "SRAM_THRESHOLD",
	119: "NVLINK_EFFECTIVE_BER_THRESHOLD",
	120: "FALLEN_OFF_BUS",
	121: "NVLINK_SYMBOL_BER_THRESHOLD",
	122: "IMEX_UNHEALTHY",
	123: "FABRIC_PROBE_STATE",
	124: "BINARY_PERMISSIONS",
	125: "GPU_RECOVERY_RESET",
	126: "GPU_RECOVERY_REBOOT",
	127: "GPU_RECOVERY_DRAIN_P2P",
	128: "GPU_RECOVERY_DRAIN_RESET",
	129: "NCCL_ERROR",
	130: "RETEST_REQUESTED",
	131: "CONTAINED_ERROR",
	132: "UNCORRECTABLE_ROW_REMAP_LIMIT",
	133: "CPU_SDC_TEST_FAILED",
}

// errorName returns the label of an error code. The label of an unknown code contains its number, as in dcgm-exporter.
func errorName(code uint32) string {
	if code < uint32(len(errorCodes)) && errorCodes[code] != "" {
		return "DCGM_FR_" + errorCodes[code]
	}
	return fmt.Sprintf("DCGM_FR_UNKNOWN(%d)", code)
}
