// Handles of GPUs and of MIG devices, and other answers of discovery, by value.
//
// NVML's functions are called by address; their types are those of nvml.h of NVML
// 13.3 (go-nvml v0.13.3-0): a handle is a pointer, nvmlReturn_t an enum of int size.
#ifndef WARPGAUGE_NVML_HANDLE_H
#define WARPGAUGE_NVML_HANDLE_H

#include <stdint.h>

struct wg_handle {
	uintptr_t handle;
	int code;
};

// nvmlDeviceGetHandleByIndex_v2
struct wg_handle wg_handle_by_index(void *f, unsigned int index);

// nvmlDeviceGetMigDeviceHandleByIndex
struct wg_handle wg_mig_by_index(void *f, uintptr_t gpu, unsigned int index);

// wg_mig_layout is a hash over MIG mode and the UUIDs of the MIG devices by index,
// and 0 where one of them is not to be had. Handles and ids are used again for
// other instances, UUIDs are not. The functions are nvmlDeviceGetMigMode,
// nvmlDeviceGetMaxMigDeviceCount, nvmlDeviceGetMigDeviceHandleByIndex and
// nvmlDeviceGetUUID.
uint64_t wg_mig_layout(void *mode, void *count, void *by_index, void *uuid, uintptr_t gpu);

// wg_platform is nvmlDeviceGetPlatformInfo with nvmlPlatformInfo_v2_t; go-nvml
// knows the first version only, in which a serial number is something else.
struct wg_platform_info {
	uint64_t guid;
	char serial[17]; // ends with a zero byte
	int code;
};
struct wg_platform_info wg_platform(void *f, uintptr_t gpu);

#endif
