// Readings of a GPU that are one number, or a few.
#include "fake.h"

#include <string.h>

// All enumerations of NVML are as wide as unsigned int.
#define UINT_OF(f, type, key)                                                                                                  \
	nvmlReturn_t f(nvmlDevice_t d, type *out) {                                                                             \
		GPU(f, d);                                                                                                      \
		LEAVE(get_uint(&c, key, (unsigned *)out));                                                                      \
	}

UINT_OF(nvmlDeviceGetBrand, nvmlBrandType_t, K_BRAND)
UINT_OF(nvmlDeviceGetMinorNumber, unsigned, K_MINOR)
UINT_OF(nvmlDeviceGetModuleId, unsigned, K_MODULE_ID)
UINT_OF(nvmlDeviceGetBoardId, unsigned, K_BOARD_ID)
UINT_OF(nvmlDeviceGetMultiGpuBoard, unsigned, K_MULTI_GPU)
UINT_OF(nvmlDeviceGetNumGpuCores, unsigned, K_CORES)
UINT_OF(nvmlDeviceGetMemoryBusWidth, unsigned, K_BUS_WIDTH)
UINT_OF(nvmlDeviceGetBusType, nvmlBusType_t, K_BUS_TYPE)
UINT_OF(nvmlDeviceGetPowerSource, nvmlPowerSource_t, K_POWER_SOURCE)
UINT_OF(nvmlDeviceGetIrqNum, unsigned, K_IRQ)
UINT_OF(nvmlDeviceGetNumaNodeId, unsigned, K_NUMA)
UINT_OF(nvmlDeviceGetInforomConfigurationChecksum, unsigned, K_INFOROM_CHECKSUM)
UINT_OF(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, K_PERSISTENCE)
UINT_OF(nvmlDeviceGetComputeMode, nvmlComputeMode_t, K_COMPUTE_MODE)
UINT_OF(nvmlDeviceGetDisplayMode, nvmlEnableState_t, K_DISPLAY_MODE)
UINT_OF(nvmlDeviceGetDisplayActive, nvmlEnableState_t, K_DISPLAY_ACTIVE)
UINT_OF(nvmlDeviceGetDefaultEccMode, nvmlEnableState_t, K_ECC_DEFAULT)
UINT_OF(nvmlDeviceGetAccountingMode, nvmlEnableState_t, K_ACCOUNTING)
UINT_OF(nvmlDeviceGetPerformanceState, nvmlPstates_t, K_PSTATE)
UINT_OF(nvmlDeviceGetPowerState, nvmlPstates_t, K_PSTATE)
UINT_OF(nvmlDeviceGetPowerUsage, unsigned, K_POWER)
UINT_OF(nvmlDeviceGetPowerManagementMode, nvmlEnableState_t, K_POWER_MANAGEMENT)
UINT_OF(nvmlDeviceGetPowerManagementLimit, unsigned, K_POWER_LIMIT)
UINT_OF(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, K_POWER_DEFAULT)
UINT_OF(nvmlDeviceGetEnforcedPowerLimit, unsigned, K_POWER_ENFORCED)
UINT_OF(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, K_PCIE_GEN_MAX)
UINT_OF(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned, K_PCIE_GEN_GPU)
UINT_OF(nvmlDeviceGetMaxPcieLinkWidth, unsigned, K_PCIE_WIDTH_MAX)
UINT_OF(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, K_PCIE_GEN)
UINT_OF(nvmlDeviceGetCurrPcieLinkWidth, unsigned, K_PCIE_WIDTH)
UINT_OF(nvmlDeviceGetPcieSpeed, unsigned, K_PCIE_SPEED)
UINT_OF(nvmlDeviceGetPcieLinkMaxSpeed, unsigned, K_PCIE_SPEED_MAX)
UINT_OF(nvmlDeviceGetPcieReplayCounter, unsigned, K_PCIE_REPLAY)
UINT_OF(nvmlDeviceGetNumFans, unsigned, K_FAN_COUNT)
UINT_OF(nvmlDeviceGetVirtualizationMode, nvmlGpuVirtualizationMode_t, K_VIRT_MODE)
UINT_OF(nvmlDeviceGetHostVgpuMode, nvmlHostVgpuMode_t, K_VGPU_HOST_MODE)

#define ULL_OF(f, key)                                                                                                         \
	nvmlReturn_t f(nvmlDevice_t d, unsigned long long *out) {                                                               \
		GPU(f, d);                                                                                                      \
		LEAVE(get_ull(&c, key, out));                                                                                   \
	}

ULL_OF(nvmlDeviceGetTotalEnergyConsumption, K_ENERGY)
ULL_OF(nvmlDeviceGetCurrentClocksEventReasons, K_REASONS)
ULL_OF(nvmlDeviceGetCurrentClocksThrottleReasons, K_REASONS)
ULL_OF(nvmlDeviceGetSupportedClocksEventReasons, K_REASONS_SUPPORTED)
ULL_OF(nvmlDeviceGetSupportedClocksThrottleReasons, K_REASONS_SUPPORTED)
ULL_OF(nvmlDeviceGetSupportedEventTypes, K_EVENTS)

// The instruction set is the same in every instance.
nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t d, nvmlDeviceArchitecture_t *out) {
	ANY(nvmlDeviceGetArchitecture, d);
	LEAVE(get_uint(&c, K_ARCH, out));
}

#define BOTH_OF(f, type, first, second)                                                                                        \
	nvmlReturn_t f(nvmlDevice_t d, type *a, type *b) {                                                                      \
		GPU(f, d);                                                                                                      \
		nvmlReturn_t r = get_uint(&c, first, (unsigned *)a);                                                            \
		LEAVE(r == NVML_SUCCESS ? get_uint(&c, second, (unsigned *)b) : r);                                             \
	}

BOTH_OF(nvmlDeviceGetEccMode, nvmlEnableState_t, K_ECC_CURRENT, K_ECC_PENDING)
BOTH_OF(nvmlDeviceGetMigMode, unsigned, K_MIG_MODE, K_MIG_PENDING)
BOTH_OF(nvmlDeviceGetPowerManagementLimitConstraints, unsigned, K_POWER_MIN, K_POWER_MAX)
BOTH_OF(nvmlDeviceGetMinMaxFanSpeed, unsigned, K_FAN_MIN, K_FAN_MAX)
BOTH_OF(nvmlDeviceGetGpuOperationMode, nvmlGpuOperationMode_t, K_OPERATION_MODE, K_OPERATION_MODE)
BOTH_OF(nvmlDeviceGetAutoBoostedClocksEnabled, nvmlEnableState_t, K_AUTO_BOOST, K_AUTO_BOOST)
BOTH_OF(nvmlDeviceGetGspFirmwareMode, unsigned, K_GSP_ENABLED, K_GSP_ENABLED)
BOTH_OF(nvmlDeviceGetEncoderUtilization, unsigned, K_UTIL_ENCODER, K_UTIL_PERIOD)
BOTH_OF(nvmlDeviceGetDecoderUtilization, unsigned, K_UTIL_DECODER, K_UTIL_PERIOD)
BOTH_OF(nvmlDeviceGetJpgUtilization, unsigned, K_UTIL_JPG, K_UTIL_PERIOD)
BOTH_OF(nvmlDeviceGetOfaUtilization, unsigned, K_UTIL_OFA, K_UTIL_PERIOD)

// A reading that an argument chooses from count elements.
#define CHOSEN_OF(f, argument, count, key)                                                                                     \
	nvmlReturn_t f(nvmlDevice_t d, argument which, unsigned *out) {                                                         \
		GPU(f, d);                                                                                                      \
		LEAVE((unsigned)which < (count) ? get_uint(&c, (key) + (int)which, out) : NVML_ERROR_INVALID_ARGUMENT);         \
	}

CHOSEN_OF(nvmlDeviceGetClockInfo, nvmlClockType_t, 4, K_CLOCK)
CHOSEN_OF(nvmlDeviceGetMaxClockInfo, nvmlClockType_t, 4, K_CLOCK_MAX)
CHOSEN_OF(nvmlDeviceGetApplicationsClock, nvmlClockType_t, 4, K_CLOCK_APP)
CHOSEN_OF(nvmlDeviceGetDefaultApplicationsClock, nvmlClockType_t, 4, K_CLOCK_APP_DEFAULT)
CHOSEN_OF(nvmlDeviceGetMaxCustomerBoostClock, nvmlClockType_t, 4, K_CLOCK_BOOST)
CHOSEN_OF(nvmlDeviceGetTemperatureThreshold, nvmlTemperatureThresholds_t, NVML_TEMPERATURE_THRESHOLD_COUNT, K_THRESHOLD)
CHOSEN_OF(nvmlDeviceGetEncoderCapacity, nvmlEncoderType_t, 3, K_ENCODER_CAPACITY)

nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t d, nvmlClockType_t type, nvmlClockId_t id, unsigned *out) {
	static const int keys[] = {K_CLOCK, K_CLOCK_APP, K_CLOCK_APP_DEFAULT, K_CLOCK_BOOST};
	GPU(nvmlDeviceGetClock, d);
	LEAVE((unsigned)type < 4 && (unsigned)id < 4 ? get_uint(&c, keys[id] + (int)type, out) : NVML_ERROR_INVALID_ARGUMENT);
}

// list answers how many there are if the caller's room is too small.
static nvmlReturn_t list(const struct call *c, int key, int elements, unsigned *count, unsigned *out) {
	unsigned have = 0, v;
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	while ((int)have < elements && get_uint(c, key + (int)have, &v) == NVML_SUCCESS) {
		if (out && have < *count)
			out[have] = v;
		have++;
	}
	bool fits = out && have <= *count;
	*count = have;
	if (have == 0)
		return NVML_ERROR_NOT_SUPPORTED;
	return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t d, unsigned *count, unsigned *out) {
	GPU(nvmlDeviceGetSupportedMemoryClocks, d);
	LEAVE(list(&c, K_CLOCK_MEMORY_LIST, 4, count, out));
}

nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t d, unsigned memory, unsigned *count, unsigned *out) {
	(void)memory;
	GPU(nvmlDeviceGetSupportedGraphicsClocks, d);
	LEAVE(list(&c, K_CLOCK_GRAPHICS_LIST, 8, count, out));
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *out) {
	GPU(nvmlDeviceGetUtilizationRates, d);
	if (!out)
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	nvmlReturn_t r = get_uint(&c, K_UTIL_GPU, &out->gpu);
	LEAVE(r == NVML_SUCCESS ? get_uint(&c, K_UTIL_MEMORY, &out->memory) : r);
}

// memory splits a GPU's memory, or an instance's, as the second version does.
static nvmlReturn_t memory(const struct call *c, nvmlMemory_v2_t *m) {
	nvmlReturn_t r;
	double used = 0;
	if (c->m) {
		m->total = c->m->profile.memory << 20;
		m->reserved = m->total / 64;
		if ((r = value_of(c, &c->m->used, 0, load_at(c), work_until(c), &used)))
			return r;
		m->used = (unsigned long long)used;
	} else if ((r = get_ull(c, K_MEMORY_TOTAL, &m->total)) || (r = get_ull(c, K_MEMORY_RESERVED, &m->reserved)) || (r = get_ull(c, K_MEMORY_USED, &m->used)))
		return r;
	m->free = m->total - m->reserved - m->used;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t d, nvmlMemory_v2_t *out) {
	ANY(nvmlDeviceGetMemoryInfo_v2, d);
	if (!out || !HAS_VERSION(out, nvmlMemory_v2))
		LEAVE(out ? NVML_ERROR_ARGUMENT_VERSION_MISMATCH : NVML_ERROR_INVALID_ARGUMENT);
	LEAVE(memory(&c, out));
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
	if (!out)
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	nvmlReturn_t r = get_ull(&c, K_BAR1_TOTAL, &out->bar1Total);
	if (r == NVML_SUCCESS)
		r = get_ull(&c, K_BAR1_USED, &out->bar1Used);
	out->bar1Free = out->bar1Total - out->bar1Used;
	LEAVE(r);
}

nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t d, nvmlPcieUtilCounter_t counter, unsigned *out) {
	GPU(nvmlDeviceGetPcieThroughput, d);
	LEAVE(get_uint(&c, counter == NVML_PCIE_UTIL_TX_BYTES ? K_PCIE_TX : K_PCIE_RX, out));
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t d, nvmlTemperatureSensors_t sensor, unsigned *out) {
	GPU(nvmlDeviceGetTemperature, d);
	LEAVE(sensor == NVML_TEMPERATURE_GPU ? get_uint(&c, K_TEMPERATURE, out) : NVML_ERROR_INVALID_ARGUMENT);
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t d, nvmlTemperature_t *t) {
	GPU(nvmlDeviceGetTemperatureV, d);
	if (!t || !HAS_VERSION(t, nvmlTemperature_v1))
		LEAVE(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	LEAVE(t->sensorType == NVML_TEMPERATURE_GPU ? get_int(&c, K_TEMPERATURE, &t->temperature) : NVML_ERROR_INVALID_ARGUMENT);
}

nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t d, nvmlMarginTemperature_t *t) {
	GPU(nvmlDeviceGetMarginTemperature, d);
	if (!t || !HAS_VERSION(t, nvmlMarginTemperature_v1))
		LEAVE(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	LEAVE(get_int(&c, K_MARGIN, &t->marginTemperature));
}

nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t d, unsigned *out) {
	GPU(nvmlDeviceGetFanSpeed, d);
	LEAVE(get_uint(&c, K_FAN, out));
}

// fan is the key of a fan's element, or -1.
static int fan(const struct call *c, int key, unsigned n) {
	unsigned have = 0;
	return get_uint(c, K_FAN_COUNT, &have) == NVML_SUCCESS && n < have && n < 4 ? key + (int)n : -1;
}

static nvmlReturn_t fan_uint(const struct call *c, int key, unsigned n, unsigned *out) {
	unsigned have;
	nvmlReturn_t r = get_uint(c, K_FAN_COUNT, &have);
	if (r != NVML_SUCCESS)
		return r;
	int k = fan(c, key, n);
	return k < 0 ? NVML_ERROR_INVALID_ARGUMENT : get_uint(c, k, out);
}

nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t d, unsigned n, unsigned *out) {
	GPU(nvmlDeviceGetFanSpeed_v2, d);
	LEAVE(fan_uint(&c, K_FAN, n, out));
}

nvmlReturn_t nvmlDeviceGetTargetFanSpeed(nvmlDevice_t d, unsigned n, unsigned *out) {
	GPU(nvmlDeviceGetTargetFanSpeed, d);
	LEAVE(fan_uint(&c, K_FAN_TARGET, n, out));
}

nvmlReturn_t nvmlDeviceGetFanSpeedRPM(nvmlDevice_t d, nvmlFanSpeedInfo_t *f) {
	GPU(nvmlDeviceGetFanSpeedRPM, d);
	if (!f || !HAS_VERSION(f, nvmlFanSpeedInfo_v1))
		LEAVE(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	LEAVE(fan_uint(&c, K_FAN_RPM, f->fan, &f->speed));
}

nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t d, nvmlPerfPolicyType_t policy, nvmlViolationTime_t *out) {
	GPU(nvmlDeviceGetViolationStatus, d);
	if (!out || (unsigned)policy >= 12)
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	out->referenceTime = (unsigned long long)(c.now * 1e6);
	LEAVE(get_ull(&c, K_VIOLATION + (int)policy, &out->violationTime));
}

nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t d, unsigned *sessions, unsigned *fps, unsigned *latency) {
	GPU(nvmlDeviceGetEncoderStats, d);
	nvmlReturn_t r = get_uint(&c, K_ENCODER_SESSIONS, sessions);
	if (r == NVML_SUCCESS)
		r = get_uint(&c, K_ENCODER_FPS, fps);
	LEAVE(r == NVML_SUCCESS ? get_uint(&c, K_ENCODER_LATENCY, latency) : r);
}

nvmlReturn_t nvmlDeviceGetFBCStats(nvmlDevice_t d, nvmlFBCStats_t *out) {
	GPU(nvmlDeviceGetFBCStats, d);
	if (!out)
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	nvmlReturn_t r = get_uint(&c, K_FBC_SESSIONS, &out->sessionsCount);
	if (r == NVML_SUCCESS)
		r = get_uint(&c, K_FBC_FPS, &out->averageFPS);
	LEAVE(r == NVML_SUCCESS ? get_uint(&c, K_FBC_LATENCY, &out->averageLatency) : r);
}

nvmlReturn_t nvmlDeviceGetC2cModeInfoV(nvmlDevice_t d, nvmlC2cModeInfo_v1_t *out) {
	GPU(nvmlDeviceGetC2cModeInfoV, d);
	LEAVE(out ? get_uint(&c, K_C2C_MODE, &out->isC2cEnabled) : NVML_ERROR_INVALID_ARGUMENT);
}

nvmlReturn_t nvmlDeviceGetCapabilities(nvmlDevice_t d, nvmlDeviceCapabilities_t *out) {
	GPU(nvmlDeviceGetCapabilities, d);
	if (!out || !HAS_VERSION(out, nvmlDeviceCapabilities_v1))
		LEAVE(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	LEAVE(get_uint(&c, K_CAPABILITIES, &out->capMask));
}

nvmlReturn_t nvmlDeviceValidateInforom(nvmlDevice_t d) {
	unsigned valid;
	GPU(nvmlDeviceValidateInforom, d);
	nvmlReturn_t r = get_uint(&c, K_INFOROM_VALID, &valid);
	LEAVE(r == NVML_SUCCESS && !valid ? NVML_ERROR_CORRUPTED_INFOROM : r);
}

// mask fills words of a mask; what the script leaves out of it is 0.
static nvmlReturn_t mask(const struct call *c, int key, unsigned words, unsigned long *out) {
	unsigned long long v;
	if (!out || words == 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	nvmlReturn_t r = get_ull(c, key, &v);
	for (unsigned i = 0; i < words && r == NVML_SUCCESS; i++)
		out[i] = i < 4 && get_ull(c, key + (int)i, &v) == NVML_SUCCESS ? (unsigned long)v : 0;
	return r;
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t d, unsigned words, unsigned long *out) {
	GPU(nvmlDeviceGetCpuAffinity, d);
	LEAVE(mask(&c, K_AFFINITY_CPU, words, out));
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t d, unsigned words, unsigned long *out, nvmlAffinityScope_t scope) {
	(void)scope;
	GPU(nvmlDeviceGetMemoryAffinity, d);
	LEAVE(mask(&c, K_AFFINITY_MEMORY, words, out));
}

// Both versions of the struct are of one size and have the same bytes for the
// same things, by other names.
nvmlReturn_t nvmlDeviceGetPlatformInfo(nvmlDevice_t d, nvmlPlatformInfo_t *out) {
	_Static_assert(sizeof(nvmlPlatformInfo_v1_t) == sizeof(nvmlPlatformInfo_v2_t), "they differ in names");
	GPU(nvmlDeviceGetPlatformInfo, d);
	if (!out || !(HAS_VERSION(out, nvmlPlatformInfo_v1) || HAS_VERSION(out, nvmlPlatformInfo_v2)))
		LEAVE(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	unsigned char *bytes[] = {&out->slotNumber, &out->trayIndex, &out->hostId, &out->peerType, &out->moduleId};
	nvmlReturn_t r = NVML_SUCCESS;
	for (int i = 0; i < 5 && r == NVML_SUCCESS; i++) {
		unsigned v;
		if ((r = get_uint(&c, K_PLATFORM + i, &v)) == NVML_SUCCESS)
			*bytes[i] = (unsigned char)v;
	}
	LEAVE(r);
}

nvmlReturn_t nvmlDeviceGetUnrepairableMemoryFlag_v1(nvmlDevice_t d, nvmlUnrepairableMemoryStatus_v1_t *out) {
	GPU(nvmlDeviceGetUnrepairableMemoryFlag_v1, d);
	LEAVE(out ? get_uint(&c, K_UNREPAIRABLE, &out->bUnrepairableMemory) : NVML_ERROR_INVALID_ARGUMENT);
}
