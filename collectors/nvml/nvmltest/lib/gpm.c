// GPM: metrics from the mean load between two samples.
#include "fake.h"

#include <stdlib.h>

// A sample holds the inputs of the metrics.
struct nvmlGpmSample_st {
	int gpu, gi; // gpu is -1 while the sample is empty
	double at, load, work;
};

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *out) {
	SYSTEM(nvmlGpmSampleAlloc);
	struct nvmlGpmSample_st *s = out ? calloc(1, sizeof *s) : NULL;
	if (!s)
		LEAVE(out ? NVML_ERROR_MEMORY : NVML_ERROR_INVALID_ARGUMENT);
	s->gpu = -1;
	*out = s;
	atomic_fetch_add(word(WORD_SAMPLES), 1);
	LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample) {
	SYSTEM(nvmlGpmSampleFree);
	if (!sample)
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	free(sample);
	atomic_fetch_sub(word(WORD_SAMPLES), 1);
	LEAVE(NVML_SUCCESS);
}

static bool gpm(const struct call *c) {
	unsigned yes = 0;
	return get_uint(c, K_GPM_SUPPORTED, &yes) == NVML_SUCCESS && yes;
}

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t d, nvmlGpmSupport_t *out) {
	GPU(nvmlGpmQueryDeviceSupport, d);
	if (!out || out->version != NVML_GPM_SUPPORT_VERSION)
		LEAVE(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	out->isSupportedDevice = gpm(&c);
	LEAVE(NVML_SUCCESS);
}

static void fill(const struct call *c, int gi, nvmlGpmSample_t s) {
	*s = (struct nvmlGpmSample_st){c->g->number, gi, c->now, load_at(c), work_until(c)};
}

// NVML cannot sample the whole GPU in MIG mode.
nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t d, nvmlGpmSample_t sample) {
	unsigned mig = 0;
	GPU(nvmlGpmSampleGet, d);
	if (!sample)
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	if (!gpm(&c) || (get_uint(&c, K_MIG_MODE, &mig) == NVML_SUCCESS && mig))
		LEAVE(NVML_ERROR_NOT_SUPPORTED);
	fill(&c, -1, sample);
	LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t d, unsigned gi, nvmlGpmSample_t sample) {
	GPU(nvmlGpmMigSampleGet, d);
	if (!sample)
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	if (!gpm(&c))
		LEAVE(NVML_ERROR_NOT_SUPPORTED);
	for (int i = 0; i < c.g->instance_count; i++)
		if (c.g->instances[i].gi == gi) {
			c.m = &c.g->instances[i];
			fill(&c, (int)gi, sample);
			LEAVE(NVML_SUCCESS);
		}
	LEAVE(NVML_ERROR_INVALID_ARGUMENT);
}

// metric computes one metric. The samples must be from the call's GPU.
static nvmlReturn_t metric(const struct call *c, unsigned id, double load, double work, double *out) {
	if (id == 0 || id >= (unsigned)c->s->gpm || id >= 340)
		return NVML_ERROR_INVALID_ARGUMENT;
	return value_of(c, &c->g->cells[K_GPM + (int)id], load, work, out);
}

nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get) {
	struct call c;
	if (!get || get->version != NVML_GPM_METRICS_GET_VERSION)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	const struct nvmlGpmSample_st *a = get->sample1, *b = get->sample2;
	if (!a || !b || a->gpu < 0 || a->gpu != b->gpu || a->gi != b->gi || get->numMetrics == 0 || get->numMetrics > NVML_GPM_METRIC_MAX)
		return NVML_ERROR_INVALID_ARGUMENT;
	nvmlReturn_t r = enter_any(&c, FN_nvmlGpmMetricsGet, handle_of(a->gpu, -1, -1));
	if (r != NVML_SUCCESS)
		return r;
	double span = b->at - a->at, load = span > 0 ? (b->work - a->work) / span : b->load;
	c.now = b->at;
	for (unsigned i = 0; i < get->numMetrics; i++) {
		nvmlGpmMetric_t *m = &get->metrics[i];
		m->value = 0;
		m->nvmlReturn = metric(&c, m->metricId, load, b->work, &m->value);
	}
	LEAVE(NVML_SUCCESS);
}
