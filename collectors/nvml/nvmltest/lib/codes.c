// Return codes by name, and NVML's texts for them.
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	nvmlReturn_t code;
	const char *name, *text;
} codes[] = {
	{NVML_SUCCESS, "SUCCESS", "Success"},
	{NVML_ERROR_UNINITIALIZED, "UNINITIALIZED", "Uninitialized"},
	{NVML_ERROR_INVALID_ARGUMENT, "INVALID_ARGUMENT", "Invalid Argument"},
	{NVML_ERROR_NOT_SUPPORTED, "NOT_SUPPORTED", "Not Supported"},
	{NVML_ERROR_NO_PERMISSION, "NO_PERMISSION", "Insufficient Permissions"},
	{NVML_ERROR_NOT_FOUND, "NOT_FOUND", "Not Found"},
	{NVML_ERROR_INSUFFICIENT_SIZE, "INSUFFICIENT_SIZE", "Insufficient Size"},
	{NVML_ERROR_INSUFFICIENT_POWER, "INSUFFICIENT_POWER", "Insufficient External Power"},
	{NVML_ERROR_DRIVER_NOT_LOADED, "DRIVER_NOT_LOADED", "Driver Not Loaded"},
	{NVML_ERROR_TIMEOUT, "TIMEOUT", "Timeout"},
	{NVML_ERROR_IRQ_ISSUE, "IRQ_ISSUE", "Interrupt Request Issue"},
	{NVML_ERROR_LIBRARY_NOT_FOUND, "LIBRARY_NOT_FOUND", "NVML Shared Library Not Found"},
	{NVML_ERROR_CORRUPTED_INFOROM, "CORRUPTED_INFOROM", "Corrupted infoROM"},
	{NVML_ERROR_GPU_IS_LOST, "GPU_IS_LOST", "GPU is lost"},
	{NVML_ERROR_RESET_REQUIRED, "RESET_REQUIRED", "GPU requires reset"},
	{NVML_ERROR_LIB_RM_VERSION_MISMATCH, "LIB_RM_VERSION_MISMATCH", "Driver/library version mismatch"},
	{NVML_ERROR_IN_USE, "IN_USE", "In use by another client"},
	{NVML_ERROR_MEMORY, "MEMORY", "Insufficient Memory"},
	{NVML_ERROR_NO_DATA, "NO_DATA", "No data"},
	{NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "ARGUMENT_VERSION_MISMATCH", "Argument Version Mismatch"},
	{NVML_ERROR_UNKNOWN, "UNKNOWN", "Unknown Error"},
};

bool code_of(const char *name, int *out) {
	for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
		if (strcmp(codes[i].name, name) == 0) {
			*out = codes[i].code;
			return true;
		}
	char *end;
	long number = strtol(name, &end, 10);
	*out = (int)number;
	return end != name && *end == 0;
}

const char *nvmlErrorString(nvmlReturn_t result) {
	for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
		if (codes[i].code == result)
			return codes[i].text;
	return "Unknown Error";
}
