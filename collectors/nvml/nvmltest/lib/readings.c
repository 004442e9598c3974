// Readings of a GPU that are more than a number; functions.def has the numbers.
#include "fake.h"

#include <string.h>

// read_value, for generated.c, reads key if it is below end: 4 or 8 bytes, or a text.
int read_value(enum function f, void *device, int key, int end, void *out, unsigned size, bool is_text);
int read_value(enum function f, void *device, int key, int end, void *out, unsigned size, bool is_text) {
	struct call c;
	nvmlReturn_t r = enter_gpu(&c, f, device);
	if (r != NVML_SUCCESS)
		return r;
	if (key >= end)
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	LEAVE(is_text ? get_text(&c, key, out, size) : size == 8 ? get_ull(&c, key, out) : get_uint(&c, key, out));
}

int read_two(enum function f, void *device, int first, int second, unsigned *a, unsigned *b);
int read_two(enum function f, void *device, int first, int second, unsigned *a, unsigned *b) {
	struct call c;
	nvmlReturn_t r = enter_gpu(&c, f, device);
	if (r != NVML_SUCCESS)
		return r;
	r = get_uint(&c, first, a);
	LEAVE(r == NVML_SUCCESS ? get_uint(&c, second, b) : r);
}

// uints reads count elements, starting at key.
static nvmlReturn_t uints(const struct call *c, int key, int count, unsigned *out) {
	nvmlReturn_t r = out ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
	for (int i = 0; i < count && r == NVML_SUCCESS; i++)
		r = get_uint(c, key + i, &out[i]);
	return r;
}

// The instruction set is the same in every instance.
nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t d, nvmlDeviceArchitecture_t *out) {
	ANY(nvmlDeviceGetArchitecture, d);
	LEAVE(get_uint(&c, K_ARCH, out));
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t d, int *major, int *minor) {
	ANY(nvmlDeviceGetCudaComputeCapability, d);
	nvmlReturn_t r = get_int(&c, K_CC_MAJOR, major);
	LEAVE(r == NVML_SUCCESS ? get_int(&c, K_CC_MINOR, minor) : r);
}

nvmlReturn_t nvmlDeviceGetInforomVersion(nvmlDevice_t d, nvmlInforomObject_t object, char *out, unsigned length) {
	GPU(nvmlDeviceGetInforomVersion, d);
	LEAVE((unsigned)object <= 4 ? get_text(&c, K_INFOROM + (int)object, out, length) : NVML_ERROR_INVALID_ARGUMENT);
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *out) {
	GPU(nvmlDeviceGetUtilizationRates, d);
	nvmlReturn_t r = out ? get_uint(&c, K_UTIL_GPU, &out->gpu) : NVML_ERROR_INVALID_ARGUMENT;
	LEAVE(r == NVML_SUCCESS ? get_uint(&c, K_UTIL_MEMORY, &out->memory) : r);
}

// memory splits the memory of a GPU or instance as the second version of the function does. An
// instance uses 2 GiB at full load.
static nvmlReturn_t memory(const struct call *c, nvmlMemory_v2_t *m) {
	nvmlReturn_t r;
	if (c->m) {
		m->total = c->m->profile.memory << 20;
		m->reserved = m->total / 64;
		m->used = (unsigned long long)(load_at(c) * (1u << 31));
	} else if ((r = get_ull(c, K_MEMORY_TOTAL, &m->total)) || (r = get_ull(c, K_MEMORY_RESERVED, &m->reserved)) || (r = get_ull(c, K_MEMORY_USED, &m->used)))
		return r;
	m->free = m->total - m->reserved - m->used;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t d, nvmlMemory_v2_t *out) {
	ANY(nvmlDeviceGetMemoryInfo_v2, d);
	LEAVE(HAS_VERSION(out, nvmlMemory_v2) ? memory(&c, out) : NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
}

// The first version counts the reserved part as used.
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *out) {
	nvmlMemory_v2_t m;
	ANY(nvmlDeviceGetMemoryInfo, d);
	nvmlReturn_t r = out ? memory(&c, &m) : NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*out = (nvmlMemory_t){.total = m.total, .free = m.free, .used = m.used + m.reserved};
	LEAVE(r);
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t d, nvmlBAR1Memory_t *out) {
	ANY(nvmlDeviceGetBAR1MemoryInfo, d);
	nvmlReturn_t r = out ? get_ull(&c, K_BAR1_TOTAL, &out->bar1Total) : NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && (r = get_ull(&c, K_BAR1_USED, &out->bar1Used)) == NVML_SUCCESS)
		out->bar1Free = out->bar1Total - out->bar1Used;
	LEAVE(r);
}

nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t d, nvmlMarginTemperature_t *t) {
	GPU(nvmlDeviceGetMarginTemperature, d);
	LEAVE(HAS_VERSION(t, nvmlMarginTemperature_v1) ? get_int(&c, K_MARGIN, &t->marginTemperature) : NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
}

nvmlReturn_t nvmlDeviceValidateInforom(nvmlDevice_t d) {
	unsigned valid;
	GPU(nvmlDeviceValidateInforom, d);
	nvmlReturn_t r = get_uint(&c, K_INFOROM_VALID, &valid);
	LEAVE(r == NVML_SUCCESS && !valid ? NVML_ERROR_CORRUPTED_INFOROM : r);
}

// Both versions of the struct have the same size and the same bytes under different names.
nvmlReturn_t nvmlDeviceGetPlatformInfo(nvmlDevice_t d, nvmlPlatformInfo_t *out) {
	_Static_assert(sizeof(nvmlPlatformInfo_v1_t) == sizeof(nvmlPlatformInfo_v2_t), "they differ in names");
	GPU(nvmlDeviceGetPlatformInfo, d);
	if (!HAS_VERSION(out, nvmlPlatformInfo_v1) && !HAS_VERSION(out, nvmlPlatformInfo_v2))
		LEAVE(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	unsigned v[5];
	nvmlReturn_t r = uints(&c, K_PLATFORM, 5, v);
	if (r == NVML_SUCCESS) {
		out->slotNumber = (unsigned char)v[0];
		out->trayIndex = (unsigned char)v[1];
		out->hostId = (unsigned char)v[2];
		out->peerType = (unsigned char)v[3];
		out->moduleId = (unsigned char)v[4];
	}
	LEAVE(r);
}

// Memory errors: ECC, retired pages, remapped rows.

// counter returns the element in K_ECC and in each location.
#define COUNTER(type, kind) (2 * ((int)(type)&1) + ((int)(kind)&1))

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t d, nvmlMemoryErrorType_t type, nvmlEccCounterType_t kind, unsigned long long *out) {
	GPU(nvmlDeviceGetTotalEccErrors, d);
	LEAVE(get_ull(&c, K_ECC + COUNTER(type, kind), out));
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t d, nvmlMemoryErrorType_t type, nvmlEccCounterType_t kind, nvmlMemoryLocation_t at,
					     unsigned long long *out) {
	GPU(nvmlDeviceGetMemoryErrorCounter, d);
	LEAVE((unsigned)at < 8 ? get_ull(&c, K_ECC_AT + 4 * (int)at + COUNTER(type, kind), out) : NVML_ERROR_INVALID_ARGUMENT);
}

nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t d, nvmlEccSramErrorStatus_t *out) {
	GPU(nvmlDeviceGetSramEccErrorStatus, d);
	if (!HAS_VERSION(out, nvmlEccSramErrorStatus_v1))
		LEAVE(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	unsigned long long *counts = &out->aggregateUncParity;
	nvmlReturn_t r = NVML_SUCCESS;
	for (int i = 0; i < 11 && r == NVML_SUCCESS; i++)
		r = get_ull(&c, K_SRAM + i, &counts[i]);
	LEAVE(r == NVML_SUCCESS ? get_uint(&c, K_SRAM + 11, &out->bThresholdExceeded) : r);
}

// Page addresses are invented.
nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t d, nvmlPageRetirementCause_t cause, unsigned *count, unsigned long long *pages) {
	GPU(nvmlDeviceGetRetiredPages, d);
	unsigned have, room = count ? *count : 0;
	nvmlReturn_t r = count && (unsigned)cause <= 1 ? get_uint(&c, K_RETIRED + (int)cause, &have) : NVML_ERROR_INVALID_ARGUMENT;
	if (r != NVML_SUCCESS)
		LEAVE(r);
	*count = have;
	if (have > room)
		LEAVE(NVML_ERROR_INSUFFICIENT_SIZE);
	for (unsigned i = 0; i < have && pages; i++)
		pages[i] = 0x100000ULL * (i + 1) + (unsigned)cause;
	LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t d, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
	GPU(nvmlDeviceGetRemappedRows, d);
	unsigned v[4];
	nvmlReturn_t r = uints(&c, K_REMAPPED, 4, v);
	if (r == NVML_SUCCESS) {
		*corrected = v[0];
		*uncorrected = v[1];
		*pending = v[2];
		*failed = v[3];
	}
	LEAVE(r);
}

nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t d, nvmlRowRemapperHistogramValues_t *out) {
	GPU(nvmlDeviceGetRowRemapperHistogram, d);
	LEAVE(uints(&c, K_REMAP_BANKS, 5, out ? &out->max : NULL));
}

nvmlReturn_t nvmlDeviceGetUnrepairableMemoryFlag_v1(nvmlDevice_t d, nvmlUnrepairableMemoryStatus_v1_t *out) {
	GPU(nvmlDeviceGetUnrepairableMemoryFlag_v1, d);
	LEAVE(out ? get_uint(&c, K_UNREPAIRABLE, &out->bUnrepairableMemory) : NVML_ERROR_INVALID_ARGUMENT);
}
