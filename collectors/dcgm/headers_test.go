//go:build linux && cgo

package dcgm

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/programtest"
	"warpgauge/pkg/field"
)

// TestHeaders compiles our declarations against NVIDIA's headers of DCGM 4.6.1 in the module github.com/NVIDIA/go-dcgm. It
// checks every size and offset of a struct, and every version, limit, code and field ID.
func TestHeaders(t *testing.T) {
	programtest.Find(t, "cc")
	var c strings.Builder
	assert := func(format string, args ...any) {
		condition := fmt.Sprintf(format, args...)
		fmt.Fprintf(&c, "_Static_assert(%s, %q);\n", condition, condition)
	}
	for _, name := range []string{"dcgm_agent.h", "dcgm_errors.h", "dcgm_fields.h", "dcgm_structs.h", "calls_linux.h"} {
		fmt.Fprintf(&c, "#include %q\n", name)
	}
	for _, s := range structs {
		assert("sizeof(%s) == sizeof(%s)", s.ours, s.theirs)
		if s.version != 0 {
			assert("WG_VERSION(%s, %d) == %s%d", s.ours, s.version, s.macro, s.version)
		}
		theirs := strings.Fields(s.fields[1])
		for i, field := range strings.Fields(s.fields[0]) {
			assert("offsetof(%s, %s) == offsetof(%s, %s)", s.ours, field, s.theirs, theirs[i])
		}
	}
	for name, value := range constants {
		assert("(long long)%s == %dLL", name, value)
	}
	for code, name := range errorCodes {
		assert("DCGM_FR_%s == %d", name, code)
	}
	known := 0
	for _, d := range field.All() {
		if d.ID > 0 && d.ID < field.FirstExporter && d.Of == 0 {
			known++
			fmt.Fprintf(&c, "#ifdef %s\n", d.Name)
			assert("%s == %d", d.Name, d.ID)
			fmt.Fprintf(&c, "#endif\n")
		}
	}
	testkit.ErrorIf(t, known < 600, "only %d fields", known)
	files := map[string][]byte{"check.c": []byte(c.String())}
	for _, name := range []string{"abi_linux.h", "calls_linux.h"} {
		text := testkit.Get(os.ReadFile(name))(t)
		files[name] = text
	}
	must(t, dcgmtest.Compile(t.TempDir(), files, "-std=gnu11", "-fsyntax-only", "check.c"))
}

// structs pairs the structs of abi_linux.h and dcgm_structs.h, with their fields in order.
var structs = []struct {
	ours, theirs string
	version      int
	macro        string
	fields       [2]string
}{
	{"wg_entity", "dcgmGroupEntityPair_t", 0, "", [2]string{"kind id", "entityGroupId entityId"}},
	{"wg_value1", "dcgmFieldValue_v1", 1, "dcgmFieldValue_version", [2]string{"field type status micros value", "fieldId fieldType status ts value"}},
	{"wg_value2", "dcgmFieldValue_v2", 2, "dcgmFieldValue_version", [2]string{"entity field type status micros value", "entityGroupId fieldId fieldType status ts value"}},
	{"wg_embedded2", "dcgmStartEmbeddedV2Params_v2", 2, "dcgmStartEmbeddedV2Params_version", [2]string{"mode handle log_file severity deny_count service_account deny", "opMode dcgmHandle logFile severity denyListCount serviceAccount denyList"}},
	{"wg_connect2", "dcgmConnectV2Params_v2", 2, "dcgmConnectV2Params_version", [2]string{"persist timeout_ms unix_socket", "persistAfterDisconnect timeoutMs addressIsUnixSocket"}},
	{"wg_connect3", "dcgmConnectV3Params_v1", 1, "dcgmConnectV3Params_version", [2]string{"persist timeout_ms", "persistAfterDisconnect timeoutMs"}},
	{"wg_mig_info", "dcgmMigEntityInfo_t", 0, "", [2]string{"gpu_index instance compute_instance profile slices", "nvmlGpuIndex nvmlInstanceId nvmlComputeInstanceId nvmlMigProfileId nvmlProfileSlices"}},
	{"wg_mig_entity", "dcgmMigHierarchyInfo_v2", 0, "", [2]string{"entity parent info", "entity parent info"}},
	{"wg_hierarchy2", "dcgmMigHierarchy_v2", 2, "dcgmMigHierarchy_version", [2]string{"count list", "count entityList"}},
	{"wg_gpu_links5", "dcgmNvLinkGpuLinkStatus_v4", 0, "", [2]string{"id state", "entityId linkState"}},
	{"wg_gpu_links4", "dcgmNvLinkGpuLinkStatus_v3", 0, "", [2]string{"id state", "entityId linkState"}},
	{"wg_switch_links", "dcgmNvLinkNvSwitchLinkStatus_t", 0, "", [2]string{"id state", "entityId linkState"}},
	{"wg_links5", "dcgmNvLinkStatus_v5", 5, "dcgmNvLinkStatus_version", [2]string{"gpu_count gpus switch_count switches", "numGpus gpus numNvSwitches nvSwitches"}},
	{"wg_links4", "dcgmNvLinkStatus_v4", 4, "dcgmNvLinkStatus_version", [2]string{"gpu_count gpus switch_count switches", "numGpus gpus numNvSwitches nvSwitches"}},
	{"wg_gpu_peers", "dcgmNvLinkGpuLinkP2PStatus_v1", 0, "", [2]string{"id status", "entityId linkStatus"}},
	{"wg_peers1", "dcgmNvLinkP2PStatus_v1", 1, "dcgmNvLinkP2PStatus_version", [2]string{"gpu_count gpus", "numGpus gpus"}},
	{"wg_metric_group", "dcgmProfMetricGroupInfo_v2", 0, "", [2]string{"major minor field_count fields", "majorId minorId numFieldIds fieldIds"}},
	{"wg_metric_groups3", "dcgmProfGetMetricGroups_v3", 3, "dcgmProfGetMetricGroups_version", [2]string{"gpu group_count groups", "gpuId numMetricGroups metricGroups"}},
	{"wg_health_set2", "dcgmHealthSetParams_v2", 2, "dcgmHealthSetParams_version", [2]string{"group systems interval_us keep_s", "groupId systems updateInterval maxKeepAge"}},
	{"wg_incident", "dcgmIncidentInfo_t", 0, "", [2]string{"system health message code entity", "system health error.msg error.code entityInfo"}},
	{"wg_health5", "dcgmHealthResponse_v5", 5, "dcgmHealthResponse_version", [2]string{"overall count incidents", "overallHealth incidentCount incidents"}},
	{"wg_version2", "dcgmVersionInfo_v2", 2, "dcgmVersionInfo_version", [2]string{"text", "rawBuildInfoString"}},
	{"wg_cpus1", "dcgmCpuHierarchy_v1", 1, "dcgmCpuHierarchy_version", [2]string{"count cpus", "numCpus cpus"}},
}

// constants maps the headers' constants to our values.
var constants = map[string]int64{
	"DCGM_ST_OK": int64(statusOK), "DCGM_ST_BADPARAM": int64(statusBadParam), "DCGM_ST_GENERIC_ERROR": int64(statusGeneric),
	"DCGM_ST_NOT_SUPPORTED": int64(statusNotSupported), "DCGM_ST_INIT_ERROR": int64(statusInitError),
	"DCGM_ST_UNINITIALIZED": int64(statusUninitialized), "DCGM_ST_TIMEOUT": int64(statusTimeout), "DCGM_ST_VER_MISMATCH": int64(statusVersion),
	"DCGM_ST_UNKNOWN_FIELD": int64(statusUnknownField), "DCGM_ST_NO_DATA": int64(statusNoData), "DCGM_ST_STALE_DATA": int64(statusStale),
	"DCGM_ST_NOT_WATCHED": int64(statusNotWatched), "DCGM_ST_NO_PERMISSION": int64(statusNoPermission), "DCGM_ST_GPU_IS_LOST": int64(statusLost),
	"DCGM_ST_CONNECTION_NOT_VALID": int64(statusDisconnected), "DCGM_ST_GPU_NOT_SUPPORTED": int64(statusGPUUnknown),
	"DCGM_ST_MAX_LIMIT": int64(statusMaxLimit), "DCGM_ST_DUPLICATE_KEY": int64(statusDuplicate), "DCGM_ST_INSUFFICIENT_SIZE": int64(statusTooSmall),
	"DCGM_ST_MODULE_NOT_LOADED": int64(statusNoModule), "DCGM_ST_IN_USE": int64(statusInUse), "DCGM_ST_GROUP_IS_EMPTY": int64(statusEmptyGroup),
	"DCGM_ST_PROFILING_NOT_SUPPORTED": int64(statusNoProfiling), "DCGM_ST_PROFILING_LIBRARY_ERROR": int64(statusProfilingLib),
	"DCGM_ST_PROFILING_MULTI_PASS": int64(statusMultiPass), "DCGM_ST_PAUSED": int64(statusPaused), "DCGM_ST_NVML_NOT_LOADED": int64(statusNoNVML),
	"DCGM_ST_GPUS_DETACHED": int64(statusDetached),

	"DCGM_FE_NONE": int64(kindNone), "DCGM_FE_GPU": int64(kindGPU), "DCGM_FE_VGPU": int64(kindVGPU), "DCGM_FE_SWITCH": int64(kindSwitch),
	"DCGM_FE_GPU_I": int64(kindInstance), "DCGM_FE_GPU_CI": int64(kindCompute), "DCGM_FE_LINK": int64(kindLink), "DCGM_FE_CPU": int64(kindCPU),
	"DCGM_FE_CPU_CORE": int64(kindCore), "DCGM_FE_CONNECTX": int64(kindConnectX),

	"DcgmNvLinkLinkStateUp": linkUp, "DCGM_GROUP_EMPTY": 1, "DCGM_OPERATION_MODE_AUTO": 1, "DCGM_GEGE_FLAG_ONLY_SUPPORTED": 1, "DCGM_FV_FLAG_LIVE_DATA": 1,
	"DCGM_INT64_BLANK": 0x7ffffffffffffff0, "DCGM_FP64_BLANK": 140737488355328,
	"DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP": maxFieldsPerGroup + 1, "DCGM_PROF_MAX_FIELD_IDS_PER_GROUP_V2": maxProfilingFields,
	"DCGM_GROUP_MAX_ENTITIES_V2": maxMembers,

	"DcgmLoggingSeverityNone": int64(severities["NONE"]), "DcgmLoggingSeverityFatal": int64(severities["FATAL"]),
	"DcgmLoggingSeverityError": int64(severities["ERROR"]), "DcgmLoggingSeverityWarning": int64(severities["WARN"]),
	"DcgmLoggingSeverityInfo": int64(severities["INFO"]), "DcgmLoggingSeverityDebug": int64(severities["DEBUG"]),
	"DcgmLoggingSeverityVerbose": int64(severities["VERB"]),

	"DCGM_HEALTH_WATCH_PCIE": 0x1, "DCGM_HEALTH_WATCH_NVLINK": 0x2, "DCGM_HEALTH_WATCH_PMU": 0x4, "DCGM_HEALTH_WATCH_MCU": 0x8,
	"DCGM_HEALTH_WATCH_MEM": 0x10, "DCGM_HEALTH_WATCH_SM": 0x20, "DCGM_HEALTH_WATCH_INFOROM": 0x40, "DCGM_HEALTH_WATCH_THERMAL": 0x80,
	"DCGM_HEALTH_WATCH_POWER": 0x100, "DCGM_HEALTH_WATCH_DRIVER": 0x200, "DCGM_HEALTH_WATCH_ALL": healthAll,
	"DCGM_HEALTH_RESULT_PASS": 0, "DCGM_HEALTH_RESULT_WARN": 10, "DCGM_HEALTH_RESULT_FAIL": 20,

	"DcgmNvLinkP2pStatusOK": 0, "DcgmNvLinkP2pStatusUnknown": int64(len(field.LinkStatuses) - 1),

	"DCGM_FI_DEV_NAME": fieldName, "DCGM_FI_DEV_UUID": fieldUUID, "DCGM_FI_DEV_MINOR_NUMBER": fieldMinor, "DCGM_FI_DEV_PCI_BUSID": fieldPCI,
	"DCGM_FI_DEV_XID_ERRORS": int64(field.XIDErrors), "DCGM_FI_DEV_VGPU_LICENSE_STATUS": int64(field.VGPULicence),
	"DCGM_FI_DEV_COMPUTE_MODE": 65, "DCGM_FI_DEV_PERSISTENCE_MODE": 66, "DCGM_FI_DEV_INFOROM_CONFIG_CHECK": 83, "DCGM_FI_DEV_INFOROM_CONFIG_VALID": 84,
	"DCGM_FI_BIND_UNBIND_EVENT": 6, "DCGM_FI_DEV_DIAG_MEMORY_RESULT": 350,
}
