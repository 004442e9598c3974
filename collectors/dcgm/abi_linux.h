// Our own declarations of the parts of libdcgm.so.4 that we call, so that the
// build does not need the library. Names, layouts and numbers come from
// dcgm_agent.h and dcgm_structs.h of DCGM 4.6 (copied in github.com/NVIDIA/go-dcgm
// v1.4611.0). DCGM 4.0 has all of them unless a comment says otherwise.
// Each versioned struct carries its own size and version, which the library checks.
#ifndef WARPGAUGE_DCGM_ABI_H
#define WARPGAUGE_DCGM_ABI_H

#include <stdint.h>

#define WG_VERSION(type, n) ((uint32_t)(sizeof(type) | (uint64_t)(n) << 24))

enum {
	WG_MAX_GPUS = 32,        // DCGM_MAX_NUM_DEVICES
	WG_MAX_SWITCHES = 12,    // DCGM_MAX_NUM_SWITCHES
	WG_GPU_LINKS_V5 = 36,    // DCGM_NVLINK_MAX_LINKS_PER_GPU
	WG_GPU_LINKS_V4 = 18,    // DCGM_NVLINK_MAX_LINKS_PER_GPU before DCGM 4.6
	WG_SWITCH_LINKS = 256,   // DCGM_NVLINK_MAX_LINKS_PER_NVSWITCH
	WG_MAX_HIERARCHY = 448,  // DCGM_MAX_HIERARCHY_INFO: 32 GPUs, 14 each
	WG_MAX_INCIDENTS = 1024, // DCGM_HEALTH_WATCH_MAX_INCIDENTS_V2
	WG_STRING = 256,         // DCGM_MAX_STR_LENGTH
	WG_BLOB = 4096,          // DCGM_MAX_BLOB_LENGTH
};

// An entity: a kind (DCGM_FE_…) and a number within it.
typedef struct {
	int32_t kind;
	uint32_t id;
} wg_entity; // dcgmGroupEntityPair_t
_Static_assert(sizeof(wg_entity) == 8, "dcgmGroupEntityPair_t");

typedef struct {
	uint32_t version;
	wg_entity entity;
	uint16_t field;
	uint16_t type; // DCGM_FT_…: 'i', 'd', 's', 'b', 't'
	int32_t status;
	uint32_t unused;
	int64_t micros; // since 1970
	union {
		int64_t i64;
		double dbl;
		char str[WG_STRING];
		char blob[WG_BLOB];
	} value;
} wg_value2; // dcgmFieldValue_v2
_Static_assert(sizeof(wg_value2) == 4128, "dcgmFieldValue_v2");

typedef struct {
	uint32_t version;
	uint16_t field;
	uint16_t type;
	int32_t status;
	int64_t micros;
	union {
		int64_t i64;
		double dbl;
		char str[WG_STRING];
		char blob[WG_BLOB];
	} value;
} wg_value1; // dcgmFieldValue_v1
_Static_assert(sizeof(wg_value1) == 4120, "dcgmFieldValue_v1");

typedef int (*wg_value_callback)(int32_t kind, uint32_t id, wg_value1 *values, int count, void *data); // dcgmFieldValueEntityEnumeration_f

typedef struct {
	uint32_t version;
	int32_t mode; // DCGM_OPERATION_MODE_AUTO is 1
	uintptr_t handle;
	const char *log_file;
	int32_t severity;
	uint32_t deny_count;
	const char *service_account;
	uint32_t deny[10]; // DCGM_MODULE_ID_COUNT_V1
} wg_embedded2; // dcgmStartEmbeddedV2Params_v2
_Static_assert(sizeof(wg_embedded2) == 80, "dcgmStartEmbeddedV2Params_v2");

typedef struct {
	uint32_t version;
	uint32_t persist;
	uint32_t timeout_ms;
	uint32_t unix_socket;
} wg_connect2; // dcgmConnectV2Params_v2
_Static_assert(sizeof(wg_connect2) == 16, "dcgmConnectV2Params_v2");

typedef struct {
	uint32_t version;
	uint32_t persist;
	uint32_t timeout_ms;
} wg_connect3; // dcgmConnectV3Params_v1, since DCGM 4.5
_Static_assert(sizeof(wg_connect3) == 12, "dcgmConnectV3Params_v1");

typedef struct {
	char gpu_uuid[128];
	uint32_t gpu_index;        // NVML's
	uint32_t instance;         // NVML's GPU instance id; all ones for a GPU
	uint32_t compute_instance; // NVML's; all ones for a GPU and a GPU instance
	uint32_t profile;
	uint32_t slices;
} wg_mig_info; // dcgmMigEntityInfo_t

typedef struct {
	wg_entity entity;
	wg_entity parent;
	wg_mig_info info;
} wg_mig_entity; // dcgmMigHierarchyInfo_v2

typedef struct {
	uint32_t version;
	uint32_t count;
	wg_mig_entity list[WG_MAX_HIERARCHY];
} wg_hierarchy2; // dcgmMigHierarchy_v2
_Static_assert(sizeof(wg_hierarchy2) == 73480, "dcgmMigHierarchy_v2");

typedef struct {
	uint32_t id;
	int32_t state[WG_GPU_LINKS_V5]; // DcgmNvLinkLinkState…: 0 none, 1 disabled, 2 down, 3 up
} wg_gpu_links5; // dcgmNvLinkGpuLinkStatus_v4

typedef struct {
	uint32_t id;
	int32_t state[WG_GPU_LINKS_V4];
} wg_gpu_links4; // dcgmNvLinkGpuLinkStatus_v3

typedef struct {
	uint32_t id;
	int32_t state[WG_SWITCH_LINKS];
} wg_switch_links; // dcgmNvLinkNvSwitchLinkStatus_t

typedef struct {
	uint32_t version;
	uint32_t gpu_count;
	wg_gpu_links5 gpus[WG_MAX_GPUS];
	uint32_t switch_count;
	wg_switch_links switches[WG_MAX_SWITCHES];
} wg_links5; // dcgmNvLinkStatus_v5, since DCGM 4.6
_Static_assert(sizeof(wg_links5) == 17084, "dcgmNvLinkStatus_v5");

typedef struct {
	uint32_t version;
	uint32_t gpu_count;
	wg_gpu_links4 gpus[WG_MAX_GPUS];
	uint32_t switch_count;
	wg_switch_links switches[WG_MAX_SWITCHES];
} wg_links4; // dcgmNvLinkStatus_v4
_Static_assert(sizeof(wg_links4) == 14780, "dcgmNvLinkStatus_v4");

typedef struct {
	uint32_t id;
	int32_t status[WG_MAX_GPUS]; // DcgmNvLinkP2pStatus…
} wg_gpu_peers;

typedef struct {
	uint32_t version;
	uint32_t gpu_count;
	wg_gpu_peers gpus[WG_MAX_GPUS];
} wg_peers1; // dcgmNvLinkP2PStatus_v1
_Static_assert(sizeof(wg_peers1) == 4232, "dcgmNvLinkP2PStatus_v1");

typedef struct {
	uint16_t major, minor;
	uint32_t field_count;
	uint16_t fields[64];
} wg_metric_group;

typedef struct {
	uint32_t version;
	uint32_t unused;
	uint32_t gpu;
	uint32_t group_count;
	wg_metric_group groups[10];
} wg_metric_groups3; // dcgmProfGetMetricGroups_v3
_Static_assert(sizeof(wg_metric_groups3) == 1376, "dcgmProfGetMetricGroups_v3");

typedef struct {
	uint32_t version;
	uintptr_t group;
	uint32_t systems; // bits DCGM_HEALTH_WATCH_…
	int64_t interval_us;
	double keep_s;
} wg_health_set2; // dcgmHealthSetParams_v2
_Static_assert(sizeof(wg_health_set2) == 40, "dcgmHealthSetParams_v2");

typedef struct {
	uint32_t system;
	int32_t health; // DCGM_HEALTH_RESULT_…: 0 pass, 10 warn, 20 fail
	char message[1024];
	uint32_t code; // DCGM_FR_…
	wg_entity entity;
} wg_incident; // dcgmIncidentInfo_t

typedef struct {
	uint32_t version;
	int32_t overall;
	uint32_t count;
	wg_incident incidents[WG_MAX_INCIDENTS];
} wg_health5; // dcgmHealthResponse_v5
_Static_assert(sizeof(wg_health5) == 1069068, "dcgmHealthResponse_v5");

typedef struct {
	uint32_t version;
	char text[2 * WG_STRING]; // "key:value;key:value"
} wg_version2; // dcgmVersionInfo_v2
_Static_assert(sizeof(wg_version2) == 516, "dcgmVersionInfo_v2");

typedef struct {
	uint32_t id;
	struct {
		uint32_t version;
		uint64_t cores[16]; // bitmap
	} owned;
} wg_cpu; // dcgmCpuHierarchyCpu_v1
_Static_assert(sizeof(wg_cpu) == 144, "dcgmCpuHierarchyCpu_v1");

typedef struct {
	uint32_t version;
	uint32_t count;
	wg_cpu cpus[8];
} wg_cpus1; // dcgmCpuHierarchy_v1
_Static_assert(sizeof(wg_cpus1) == 1160, "dcgmCpuHierarchy_v1");

#endif
