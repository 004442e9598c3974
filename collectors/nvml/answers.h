// What NVML's functions return (nvmlReturn_t), as far as it is treated specially, and
// what is done with any of it. Numbers are those of nvml.h of NVML 13.3 (go-nvml
// v0.13.3-0). For C only.
#ifndef WARPGAUGE_NVML_ANSWERS_H
#define WARPGAUGE_NVML_ANSWERS_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum {
	WG_SUCCESS = 0,
	WG_UNINITIALIZED = 1,
	WG_INVALID_ARGUMENT = 2,
	WG_NOT_SUPPORTED = 3,
	WG_NOT_FOUND = 6,
	WG_INSUFFICIENT_SIZE = 7,
	WG_DRIVER_NOT_LOADED = 9,
	WG_FUNCTION_NOT_FOUND = 13,
	WG_CORRUPTED_INFOROM = 14,
	WG_GPU_IS_LOST = 15,
	WG_RESET_REQUIRED = 16,
	WG_LIB_RM_VERSION_MISMATCH = 18,
	WG_ARGUMENT_VERSION_MISMATCH = 25,
};

// wg_fatal tells answers that concern every call: there is no use in the others, and
// on a GPU that is gone each may take long.
static inline bool wg_fatal(int code)
{
	switch (code) {
	case WG_UNINITIALIZED:
	case WG_DRIVER_NOT_LOADED:
	case WG_GPU_IS_LOST:
	case WG_RESET_REQUIRED:
	case WG_LIB_RM_VERSION_MISMATCH:
		return true;
	}
	return false;
}

// wg_now is CLOCK_MONOTONIC in ns.
static inline int64_t wg_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#endif
