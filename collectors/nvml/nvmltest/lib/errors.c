// Memory errors: ECC, retired pages, remapped rows.
#include "fake.h"

#include <string.h>

// counter is the element of K_ECC and of each location, or -1.
static int counter(nvmlMemoryErrorType_t type, nvmlEccCounterType_t kind) {
	return (unsigned)type < 2 && (unsigned)kind < 2 ? 2 * (int)type + (int)kind : -1;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t d, nvmlMemoryErrorType_t type, nvmlEccCounterType_t kind, unsigned long long *out) {
	GPU(nvmlDeviceGetTotalEccErrors, d);
	int n = counter(type, kind);
	LEAVE(n < 0 ? NVML_ERROR_INVALID_ARGUMENT : get_ull(&c, K_ECC + n, out));
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t d, nvmlMemoryErrorType_t type, nvmlEccCounterType_t kind, nvmlMemoryLocation_t at,
					     unsigned long long *out) {
	GPU(nvmlDeviceGetMemoryErrorCounter, d);
	int n = counter(type, kind);
	LEAVE(n < 0 || (unsigned)at >= 8 ? NVML_ERROR_INVALID_ARGUMENT : get_ull(&c, K_ECC_AT + 4 * (int)at + n, out));
}

nvmlReturn_t nvmlDeviceGetDetailedEccErrors(nvmlDevice_t d, nvmlMemoryErrorType_t type, nvmlEccCounterType_t kind, nvmlEccErrorCounts_t *out) {
	GPU(nvmlDeviceGetDetailedEccErrors, d);
	int n = counter(type, kind);
	if (n < 0 || !out)
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	nvmlReturn_t r;
	if ((r = get_ull(&c, K_ECC_AT + n, &out->l1Cache)) || (r = get_ull(&c, K_ECC_AT + 4 + n, &out->l2Cache)) ||
	    (r = get_ull(&c, K_ECC_AT + 8 + n, &out->deviceMemory)) || (r = get_ull(&c, K_ECC_AT + 12 + n, &out->registerFile)))
		LEAVE(r);
	LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t d, nvmlEccSramErrorStatus_t *out) {
	GPU(nvmlDeviceGetSramEccErrorStatus, d);
	if (!out || !HAS_VERSION(out, nvmlEccSramErrorStatus_v1))
		LEAVE(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	unsigned long long *counts = &out->aggregateUncParity;
	nvmlReturn_t r = NVML_SUCCESS;
	for (int i = 0; i < 11 && r == NVML_SUCCESS; i++)
		r = get_ull(&c, K_SRAM + i, &counts[i]);
	LEAVE(r == NVML_SUCCESS ? get_uint(&c, K_SRAM + 11, &out->bThresholdExceeded) : r);
}

// retired makes up an address for each page.
static nvmlReturn_t retired(const struct call *c, nvmlPageRetirementCause_t cause, unsigned *count, unsigned long long *pages, unsigned long long *times) {
	unsigned have;
	if (!count || (unsigned)cause > 1)
		return NVML_ERROR_INVALID_ARGUMENT;
	nvmlReturn_t r = get_uint(c, K_RETIRED + (int)cause, &have);
	if (r != NVML_SUCCESS)
		return r;
	unsigned room = *count;
	*count = have;
	if (have > room)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned i = 0; i < have && pages; i++) {
		pages[i] = 0x100000ULL * (i + 1) + (unsigned)cause;
		if (times)
			times[i] = 1700000000ULL + i;
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t d, nvmlPageRetirementCause_t cause, unsigned *count, unsigned long long *pages) {
	GPU(nvmlDeviceGetRetiredPages, d);
	LEAVE(retired(&c, cause, count, pages, NULL));
}

nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t d, nvmlPageRetirementCause_t cause, unsigned *count, unsigned long long *pages,
					  unsigned long long *times) {
	GPU(nvmlDeviceGetRetiredPages_v2, d);
	LEAVE(retired(&c, cause, count, pages, times));
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t d, nvmlEnableState_t *out) {
	GPU(nvmlDeviceGetRetiredPagesPendingStatus, d);
	LEAVE(get_uint(&c, K_RETIRED_PENDING, (unsigned *)out));
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t d, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
	unsigned *out[] = {corrected, uncorrected, pending, failed};
	GPU(nvmlDeviceGetRemappedRows, d);
	nvmlReturn_t r = NVML_SUCCESS;
	for (int i = 0; i < 4 && r == NVML_SUCCESS; i++)
		r = get_uint(&c, K_REMAPPED + i, out[i]);
	LEAVE(r);
}

nvmlReturn_t nvmlDeviceGetRemappedRows_v2(nvmlDevice_t d, nvmlRemappedRowsInfo_v2_t *out) {
	GPU(nvmlDeviceGetRemappedRows_v2, d);
	nvmlReturn_t r;
	if (!out)
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	if ((r = get_uint(&c, K_REMAPPED, &out->corrActiveRemaps)) || (r = get_uint(&c, K_REMAPPED_INACTIVE, &out->corrInactiveRemaps)) ||
	    (r = get_uint(&c, K_REMAPPED + 1, &out->uncActiveRemaps)) || (r = get_uint(&c, K_REMAPPED_INACTIVE + 1, &out->uncInactiveRemaps)) ||
	    (r = get_uint(&c, K_REMAPPED + 2, &out->bPending)) || (r = get_uint(&c, K_REMAPPED + 3, &out->bFailureOccurred)))
		LEAVE(r);
	LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t d, nvmlRowRemapperHistogramValues_t *out) {
	GPU(nvmlDeviceGetRowRemapperHistogram, d);
	if (!out)
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	unsigned *banks = &out->max;
	nvmlReturn_t r = NVML_SUCCESS;
	for (int i = 0; i < 5 && r == NVML_SUCCESS; i++)
		r = get_uint(&c, K_REMAP_BANKS + i, &banks[i]);
	LEAVE(r);
}

nvmlReturn_t nvmlDeviceGetRepairStatus(nvmlDevice_t d, nvmlRepairStatus_t *out) {
	GPU(nvmlDeviceGetRepairStatus, d);
	if (!out || !HAS_VERSION(out, nvmlRepairStatus_v1))
		LEAVE(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	nvmlReturn_t r = get_uint(&c, K_REPAIR, &out->bChannelRepairPending);
	LEAVE(r == NVML_SUCCESS ? get_uint(&c, K_REPAIR + 1, &out->bTpcRepairPending) : r);
}
