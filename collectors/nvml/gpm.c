//go:build linux && cgo

#include "answers.h"
#include "gpm.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

typedef void *device;
typedef void *sample; // nvmlGpmSample_t is a struct of one pointer, which is passed like one

struct metric {
	unsigned int id;
	int code;
	double value;
	const char *info[3]; // short name, long name, unit
};
_Static_assert(sizeof(struct metric) == 40, "nvmlGpmMetric_t");

// As many as in NVML 13.3. An older library has room for fewer and looks at count only.
enum { MOST_METRICS = 333 };

// No more are asked for at once: NVML before driver 570 has room for 98.
enum { AT_ONCE = 64 };

struct metrics {
	unsigned int version, count;
	sample older, newer;
	struct metric metric[MOST_METRICS];
};
_Static_assert(offsetof(struct metrics, metric) == 24, "nvmlGpmMetricsGet_t");

enum { METRICS_VERSION = 1 }; // NVML_GPM_METRICS_GET_VERSION

typedef int (*alloc_fn)(sample *);
typedef int (*drop_fn)(sample);
typedef int (*get_fn)(device, sample);
typedef int (*mig_get_fn)(device, unsigned int, sample);
typedef int (*metrics_fn)(struct metrics *);

struct wg_gpm {
	get_fn get;
	mig_get_fn mig_get;
	metrics_fn read;
	struct metrics scratch;
};

struct wg_gpm *wg_gpm_new(void *get, void *mig_get, void *metrics)
{
	struct wg_gpm *g = calloc(1, sizeof *g);
	if (g != NULL) {
		g->get = (get_fn)get;
		g->mig_get = (mig_get_fn)mig_get;
		g->read = (metrics_fn)metrics;
	}
	return g;
}

void wg_gpm_free(struct wg_gpm *g) { free(g); }

uint64_t wg_gpm_sample(void *alloc)
{
	sample s = NULL;
	return ((alloc_fn)alloc)(&s) == WG_SUCCESS ? (uint64_t)(uintptr_t)s : 0;
}

void wg_gpm_drop(void *drop, uint64_t s) { ((drop_fn)drop)((sample)(uintptr_t)s); }

static int take(const struct wg_gpm *g, const struct wg_gpm_take *t)
{
	device dev = (device)(uintptr_t)t->dev;
	sample to = (sample)(uintptr_t)t->sample;
	if (t->instance == WG_GPM_WHOLE)
		return g->get(dev, to);
	if (g->mig_get == NULL)
		return WG_FUNCTION_NOT_FOUND;
	return g->mig_get(dev, t->instance, to);
}

// read_some reads up to AT_ONCE metrics.
static int read_some(struct wg_gpm *g, const struct wg_gpm_read *r, struct wg_gpm_value *values, uint32_t count)
{
	struct metrics *m = &g->scratch;
	m->version = METRICS_VERSION;
	m->count = count;
	m->older = (sample)(uintptr_t)r->older;
	m->newer = (sample)(uintptr_t)r->newer;
	for (uint32_t i = 0; i < count; i++)
		m->metric[i] = (struct metric){.id = values[i].metric, .value = NAN};
	int code = g->read(m);
	for (uint32_t i = 0; i < count; i++) {
		values[i].code = code != WG_SUCCESS ? code : m->metric[i].code;
		values[i].value = values[i].code == WG_SUCCESS ? m->metric[i].value : NAN;
	}
	return code;
}

void wg_gpm_run(struct wg_gpm *g, struct wg_gpm_take *takes, uint32_t ntakes, struct wg_gpm_read *reads, uint32_t nreads,
		struct wg_gpm_value *values, struct wg_gpm_cost *cost)
{
	int64_t start = wg_now();
	for (uint32_t i = 0; i < ntakes; i++)
		takes[i].code = take(g, &takes[i]);
	int64_t taken = wg_now();
	uint64_t calls = 0;
	for (uint32_t i = 0; i < nreads; i++) {
		struct wg_gpm_read *r = &reads[i];
		r->code = takes[r->take].code;
		for (uint32_t at = 0; at < r->count && r->code == WG_SUCCESS; at += AT_ONCE, calls++) {
			uint32_t rest = r->count - at;
			r->code = read_some(g, r, &values[r->first + at], rest < AT_ONCE ? rest : AT_ONCE);
		}
	}
	*cost = (struct wg_gpm_cost){ntakes, (uint64_t)(taken - start), calls, (uint64_t)(wg_now() - taken)};
}
