// A batch is a list of NVML calls that is made in one crossing from Go to C.
//
// NVML's functions are called by address and its structs are declared here as far
// as they are used, after nvml.h of NVML 13.3 (go-nvml v0.13.3-0). Enums of that
// header are unsigned int in C, nvmlReturn_t is returned as int.
#ifndef WARPGAUGE_NVML_BATCH_H
#define WARPGAUGE_NVML_BATCH_H

#include <stdint.h>

// How a function is called and what it gives. Results are doubles, in this order.
enum wg_shape {
	WG_UINT,         // f(dev, unsigned *): value
	WG_UINT_OF,      // f(dev, unsigned, unsigned *): value
	WG_UINT_PAIR,    // f(dev, unsigned *, unsigned *): both
	WG_UINT64,       // f(dev, unsigned long long *): value
	WG_UINT64_OF2,   // f(dev, unsigned, unsigned, unsigned long long *): value
	WG_UINT64_OF3,   // f(dev, unsigned, unsigned, unsigned, unsigned long long *): value
	WG_MASK64,       // WG_UINT64 whose value is a bit mask: all ones are no value
	WG_UTILIZATION,  // nvmlUtilization_t: gpu, memory
	WG_MEMORY,       // nvmlMemory_t: total, free, used
	WG_MEMORY_V2,    // nvmlMemory_v2_t: total, free, used, reserved
	WG_BAR1,         // nvmlBAR1Memory_t: total, free, used
	WG_COUNT,        // f(dev, unsigned *count, NULL): how many there are
	WG_COUNT_OF,     // f(dev, unsigned, unsigned *count, NULL): how many there are
	WG_MARGIN,       // nvmlMarginTemperature_v1_t: degrees, may be negative
	WG_SRAM,         // nvmlEccSramErrorStatus_v1_t: threshold exceeded
	WG_HISTOGRAM,    // nvmlRowRemapperHistogramValues_t: max, high, partial, low, none
	WG_UNREPAIRABLE, // nvmlUnrepairableMemoryStatus_v1_t: unrepairable
	WG_FABRIC,       // nvmlGpuFabricInfo_t: state, status, clique
	WG_FABRIC_V,     // nvmlGpuFabricInfo_v3_t or _v2_t: state, status, clique, health mask, health summary
	WG_PLATFORM,     // nvmlPlatformInfo_v2_t: slot, tray, host, peer type, module
	WG_PCI,          // nvmlPciInfo_t: device id, subsystem id
	WG_LICENCE,      // nvmlGridLicensableFeatures_t: the vGPU feature is licensed
	WG_AFFINITY,     // f(dev, 4, unsigned long *): four words of a mask
	WG_AFFINITY_OF,  // f(dev, 4, unsigned long *, unsigned): four words of a mask
	WG_VALID,        // f(dev): 1, or 0 where the answer is that the InfoROM is corrupted
	WG_GPM_SUPPORT,  // nvmlGpmSupport_t: supported
	WG_SYSTEM_INT,   // f(int *): value, of the node
	WG_SYSTEM_CC,    // nvmlConfComputeSystemState_t: feature, of the node
	WG_VGPU_UINT,    // f(nvmlVgpuInstance_t, unsigned *): value
	WG_VGPU_UINT64,  // f(nvmlVgpuInstance_t, unsigned long long *): value
	WG_VGPU_LICENCE, // f(nvmlVgpuInstance_t, nvmlVgpuLicenseInfo_t *): licensed
	WG_SHAPES
};

// WG_NO_VALUE is a code of our own: success, but the value is
// NVML_VALUE_NOT_AVAILABLE or cannot be told exactly.
enum { WG_NO_VALUE = 10000 };

// wg_call is one call with its arguments.
struct wg_call {
	uint64_t fn;  // address of the function
	uint64_t dev; // nvmlDevice_t, or nvmlVgpuInstance_t
	uint32_t arg[3];
	uint32_t shape;
	uint32_t slot; // of its first result
	uint32_t results;
	uint32_t meter;
	uint32_t due; // to be made in this run
};

// wg_value is one field of nvmlDeviceGetFieldValues.
struct wg_value {
	uint32_t id;    // NVML_FI_…
	uint32_t scope; // a link, or all ones for all of them
	uint32_t slot;
	uint32_t due;
	int32_t type;  // nvmlValueType_t of the newest answer
	int64_t stamp; // when the driver says it took it, µs since 1970, 0 if it does not say
};

// wg_slot is one result.
struct wg_slot {
	double value;
	int32_t code; // what NVML answered (0: success), or WG_NO_VALUE
	int32_t made; // a call was made for it in this run
};

// wg_meter is what one kind of call has cost in this run.
struct wg_meter {
	uint64_t count, nanos;
};

// wg_field_value is nvmlFieldValue_t.
struct wg_field_value {
	unsigned int id, scope;
	long long stamp, latency;
	unsigned int type;
	int code;
	union {
		double d;
		int si;
		unsigned int ui;
		unsigned long ul;
		unsigned long long ull;
		long long sll;
		unsigned short us;
	} value;
};

// wg_batch owns all of its memory.
struct wg_batch {
	uint64_t dev;          // whose fields are asked
	uint64_t field_values; // address of nvmlDeviceGetFieldValues, 0 if there is none
	uint32_t calls, values, slots, meters;
	uint32_t values_meter;
	int64_t values_at; // CLOCK_MONOTONIC after the newest fields were asked, ns
	struct wg_call *call;
	struct wg_value *value;
	struct wg_slot *slot;
	struct wg_meter *meter;
	struct wg_field_value *scratch;
};

// wg_new makes an empty batch of that size, or returns NULL. wg_free ends it.
struct wg_batch *wg_new(uint32_t calls, uint32_t values, uint32_t slots, uint32_t meters);
void wg_free(struct wg_batch *b);

// wg_run makes the calls that are due. It stops at the first answer that concerns
// all of them (the GPU is lost, the driver is gone) and returns that, else 0.
// What is not due keeps its value and code.
int wg_run(struct wg_batch *b);

// wg_vgpus lists the vGPUs that run on a GPU, by nvmlDeviceGetActiveVgpus at fn:
// at most *count, and sets it to how many there are. wg_vgpu_uuid asks one of them
// for its UUID, by nvmlVgpuInstanceGetUUID.
int wg_vgpus(void *fn, uint64_t dev, uint32_t *ids, uint32_t *count);
int wg_vgpu_uuid(void *fn, uint32_t vgpu, char *buf, uint32_t size);

#endif
