// Profiling samples of NVML's GPU performance monitor (GPM).
//
// NVML's functions are called by address and its structs are declared here as far
// as they are used, after nvml.h of NVML 13.3 (go-nvml v0.13.3-0). A sample is a
// handle, which is a pointer.
#ifndef WARPGAUGE_NVML_GPM_H
#define WARPGAUGE_NVML_GPM_H

#include <stdint.h>

// WG_GPM_WHOLE stands for all of a device rather than a GPU instance of it.
#define WG_GPM_WHOLE UINT32_MAX

// wg_gpm_take is one sample to be taken.
struct wg_gpm_take {
	uint64_t dev;    // nvmlDevice_t
	uint64_t sample; // where to
	uint32_t instance;
	int32_t code; // what NVML answered
};

// wg_gpm_read is what to read from two samples. It is not made where the take that
// it depends on has failed.
struct wg_gpm_read {
	uint64_t older, newer;
	uint32_t first, count; // of the values
	uint32_t take;
	int32_t code; // what NVML answered to the whole
};

// wg_gpm_value is one metric.
struct wg_gpm_value {
	uint32_t metric; // NVML_GPM_METRIC_…
	int32_t code;
	double value;
};

// wg_gpm_cost is what the calls of a run have cost.
struct wg_gpm_cost {
	uint64_t takes, take_nanos, reads, read_nanos;
};

// wg_gpm is what calls share.
struct wg_gpm;

// wg_gpm_new returns NULL without memory. The functions are nvmlGpmSampleGet,
// nvmlGpmMigSampleGet, which may be NULL, and nvmlGpmMetricsGet.
struct wg_gpm *wg_gpm_new(void *get, void *mig_get, void *metrics);
void wg_gpm_free(struct wg_gpm *g);

// wg_gpm_sample makes a sample with nvmlGpmSampleAlloc; 0 if that fails.
uint64_t wg_gpm_sample(void *alloc);
// wg_gpm_drop frees one with nvmlGpmSampleFree.
void wg_gpm_drop(void *drop, uint64_t sample);

// wg_gpm_run takes the samples, then reads.
void wg_gpm_run(struct wg_gpm *g, struct wg_gpm_take *takes, uint32_t ntakes, struct wg_gpm_read *reads, uint32_t nreads,
		struct wg_gpm_value *values, struct wg_gpm_cost *cost);

#endif
