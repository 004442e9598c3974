// Questions with a single answer, which comes by value: what go-nvml returns
// through a pointer is an allocation for each call. Declared after nvml.h of NVML
// 13: nvmlDevice_t is a pointer, nvmlReturn_t and the enums are of int size.
#ifndef WARPGAUGE_NVML_ASK_H
#define WARPGAUGE_NVML_ASK_H

#include <stdint.h>

_Static_assert(sizeof(enum {wg_enum}) == sizeof(int), "nvmlGpuP2PStatus_t, nvmlEnableState_t");

// wg_links are the NVLinks of a GPU as bit masks.
struct wg_links {
	uint64_t active;
	uint64_t known; // of the others nothing is known, or there are none
};

// wg_ask_p2p calls nvmlDeviceGetP2PStatus, whose address is fn, for NVLink. It
// returns the status, which is not negative, or minus the error.
int wg_ask_p2p(void *fn, uintptr_t a, uintptr_t b);

// wg_ask_links calls nvmlDeviceGetNvLinkState, whose address is fn, for each link.
struct wg_links wg_ask_links(void *fn, uintptr_t dev);

#endif
