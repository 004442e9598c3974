//go:build linux && cgo

#include "calls_linux.h"

#include <math.h>
#include <string.h>

#define WG_TYPE(name, args) typedef int (*wg_fn_##name) args;
WG_FUNCTIONS(WG_TYPE)
#undef WG_TYPE

#define WG_NAME(name, args) #name,
static const char *const names[] = {WG_FUNCTIONS(WG_NAME)};
#undef WG_NAME

const char *wg_function_name(int index) {
	return index >= 0 && index < WG_FUNCTION_COUNT ? names[index] : NULL;
}

// FN is a function of the library; CALL returns WG_NO_SYMBOL if the library lacks it.
#define FN(name) ((wg_fn_##name)t->at[WG_##name])
#define CALL(name, ...) (FN(name) ? FN(name)(__VA_ARGS__) : WG_NO_SYMBOL)

// FRESH empties a struct and gives it its version.
#define FRESH(out, type, v) (memset(out, 0, sizeof *(out)), (out)->version = WG_VERSION(type, v))

enum {
	ST_OK = 0,
	ST_NO_DATA = -14,
	ST_VER_MISMATCH = -12,
	OPERATION_AUTO = 1,
	GROUP_EMPTY = 1,         // DCGM_GROUP_EMPTY
	ONLY_SUPPORTED = 1,      // DCGM_GEGE_FLAG_ONLY_SUPPORTED
	LIVE_DATA = 1,           // DCGM_FV_FLAG_LIVE_DATA
};

// All values from these on are blanks: blank, not found, not supported, not
// permitted (dcgm_structs.h).
#define INT64_BLANK INT64_C(0x7ffffffffffffff0)
#define FP64_BLANK 140737488355328.0

int wg_init(const wg_table *t) { return CALL(dcgmInit); }

int wg_start_embedded(const wg_table *t, const char *log_file, int severity, uintptr_t *handle) {
	wg_embedded2 p = {.version = WG_VERSION(wg_embedded2, 2), .mode = OPERATION_AUTO, .log_file = log_file, .severity = severity};
	int r = CALL(dcgmStartEmbedded_v2, &p);
	*handle = p.handle;
	return r || p.handle ? r : -34; // DCGM_ST_IN_USE: this process has an engine already
}

int wg_stop_embedded(const wg_table *t, uintptr_t handle) { return CALL(dcgmStopEmbedded, handle); }

int wg_connect(const wg_table *t, const char *address, int is_url, int is_unix, unsigned timeout_ms, uintptr_t *handle) {
	if (is_url) {
		wg_connect3 p = {.version = WG_VERSION(wg_connect3, 1), .timeout_ms = timeout_ms};
		return CALL(dcgmConnect_v3, address, &p, handle);
	}
	wg_connect2 p = {.version = WG_VERSION(wg_connect2, 2), .timeout_ms = timeout_ms, .unix_socket = (uint32_t)is_unix};
	return CALL(dcgmConnect_v2, address, &p, handle);
}

int wg_disconnect(const wg_table *t, uintptr_t handle) { return CALL(dcgmDisconnect, handle); }

int wg_library_version(const wg_table *t, wg_version2 *out) {
	FRESH(out, wg_version2, 2);
	return CALL(dcgmVersionInfo, out);
}

int wg_version(const wg_table *t, uintptr_t handle, wg_version2 *out) {
	FRESH(out, wg_version2, 2);
	return CALL(dcgmHostengineVersionInfo, handle, out);
}

int wg_entities(const wg_table *t, uintptr_t handle, int kind, int only_supported, uint32_t *ids, int *count) {
	return CALL(dcgmGetEntityGroupEntities, handle, kind, ids, count, only_supported ? ONLY_SUPPORTED : 0);
}

int wg_hierarchy(const wg_table *t, uintptr_t handle, wg_hierarchy2 *out) {
	FRESH(out, wg_hierarchy2, 2);
	int r = CALL(dcgmGetGpuInstanceHierarchy, handle, out);
	if (out->count > WG_MAX_HIERARCHY) out->count = WG_MAX_HIERARCHY;
	return r;
}

int wg_cpus(const wg_table *t, uintptr_t handle, wg_cpus1 *out) {
	FRESH(out, wg_cpus1, 1);
	int r = CALL(dcgmGetCpuHierarchy, handle, out);
	if (out->count > 8) out->count = 8;
	return r;
}

int wg_links(const wg_table *t, uintptr_t handle, wg_links5 *out) {
	FRESH(out, wg_links5, 5);
	int r = CALL(dcgmGetNvLinkLinkStatus, handle, out);
	if (r == ST_VER_MISMATCH) {
		wg_links4 old = {.version = WG_VERSION(wg_links4, 4)};
		r = CALL(dcgmGetNvLinkLinkStatus, handle, &old);
		memset(out, 0, sizeof *out);
		out->gpu_count = old.gpu_count;
		for (int i = 0; i < WG_MAX_GPUS; i++) {
			out->gpus[i].id = old.gpus[i].id;
			memcpy(out->gpus[i].state, old.gpus[i].state, sizeof old.gpus[i].state);
		}
		out->switch_count = old.switch_count;
		memcpy(out->switches, old.switches, sizeof out->switches);
	}
	if (out->gpu_count > WG_MAX_GPUS) out->gpu_count = WG_MAX_GPUS;
	if (out->switch_count > WG_MAX_SWITCHES) out->switch_count = WG_MAX_SWITCHES;
	return r;
}

int wg_peers(const wg_table *t, uintptr_t handle, wg_peers1 *out) {
	FRESH(out, wg_peers1, 1);
	int r = CALL(dcgmGetNvLinkP2PStatus, handle, out);
	if (out->gpu_count > WG_MAX_GPUS) out->gpu_count = WG_MAX_GPUS;
	return r;
}

int wg_group_create(const wg_table *t, uintptr_t handle, const char *name, const wg_entity *e, int n, uintptr_t *group) {
	int r = CALL(dcgmGroupCreate, handle, GROUP_EMPTY, name, group);
	if (r != ST_OK) return r;
	for (int i = 0; i < n && r == ST_OK; i++) r = CALL(dcgmGroupAddEntity, handle, *group, e[i].kind, e[i].id);
	if (r != ST_OK) wg_group_destroy(t, handle, *group);
	return r;
}

int wg_group_destroy(const wg_table *t, uintptr_t handle, uintptr_t group) { return CALL(dcgmGroupDestroy, handle, group); }

int wg_fields_create(const wg_table *t, uintptr_t handle, const char *name, const uint16_t *f, int n, uintptr_t *fields) {
	return CALL(dcgmFieldGroupCreate, handle, n, f, name, fields);
}

int wg_fields_destroy(const wg_table *t, uintptr_t handle, uintptr_t fields) { return CALL(dcgmFieldGroupDestroy, handle, fields); }

int wg_watch(const wg_table *t, uintptr_t handle, uintptr_t group, uintptr_t fields, int64_t every_us, double keep_s) {
	return CALL(dcgmWatchFields, handle, group, fields, every_us, keep_s, 0);
}

int wg_unwatch(const wg_table *t, uintptr_t handle, uintptr_t group, uintptr_t fields) {
	return CALL(dcgmUnwatchFields, handle, group, fields);
}

// sentinel_of returns the sentinel of a blank by its distance to the first blank.
static int32_t sentinel_of(double distance) {
	return distance >= 0 && distance < 4 ? 1 + (int32_t)distance : distance >= 4;
}

wg_cell wg_decode(uint16_t type, int32_t status, int64_t micros, int64_t i64, double dbl) {
	wg_cell c = {.value = NAN, .micros = micros, .status = status};
	if (status != ST_OK) return c;
	if (type == 'i' || type == 't') {
		if (i64 < INT64_BLANK) c.value = (double)i64;
		else c.sentinel = sentinel_of((double)(i64 - INT64_BLANK));
	} else if (type == 'd') {
		if (dbl < FP64_BLANK) c.value = dbl; // false for NaN, too
		else c.sentinel = sentinel_of(dbl - FP64_BLANK);
	}
	return c;
}

// index_of finds the cell of a value. The answer usually has the order of the
// request, so it tries the expected cell first.
static long index_of(const wg_value2 *v, uint32_t expected, const wg_entity *e, uint32_t ne, const uint16_t *f, uint32_t nf) {
	if (expected < ne * nf) {
		const wg_entity *x = &e[expected / nf];
		if (x->kind == v->entity.kind && x->id == v->entity.id && f[expected % nf] == v->field) return expected;
	}
	for (uint32_t i = 0; i < ne; i++) {
		if (e[i].kind != v->entity.kind || e[i].id != v->entity.id) continue;
		for (uint32_t j = 0; j < nf; j++)
			if (f[j] == v->field) return (long)i * nf + j;
	}
	return -1;
}

// ask marks all of scratch before the call, so that unwritten values are recognised.
static int ask(const wg_table *t, uintptr_t handle, const wg_entity *e, uint32_t ne, const uint16_t *f, uint32_t nf, int live,
               wg_value2 *scratch) {
	for (uint32_t i = 0; i < ne * nf; i++) {
		scratch[i].version = WG_VERSION(wg_value2, 2);
		scratch[i].field = 0; // no field has number 0
		scratch[i].status = ST_NO_DATA;
	}
	return CALL(dcgmEntitiesGetLatestValues, handle, e, ne, f, nf, live ? LIVE_DATA : 0, scratch);
}

int wg_latest(const wg_table *t, uintptr_t handle, const wg_entity *e, uint32_t ne, const uint16_t *f, uint32_t nf, int live,
              wg_value2 *scratch, wg_cell *cells) {
	for (uint32_t i = 0; i < ne * nf; i++) cells[i] = (wg_cell){.value = NAN, .status = ST_NO_DATA};
	int r = ask(t, handle, e, ne, f, nf, live, scratch);
	if (r != ST_OK) return r;
	for (uint32_t i = 0; i < ne * nf; i++) {
		const wg_value2 *v = &scratch[i];
		long at = v->field ? index_of(v, i, e, ne, f, nf) : -1;
		if (at >= 0) cells[at] = wg_decode(v->type, v->status, v->micros, v->value.i64, v->value.dbl);
	}
	return ST_OK;
}

int wg_texts(const wg_table *t, uintptr_t handle, const wg_entity *e, uint32_t ne, const uint16_t *f, uint32_t nf, int live,
             wg_value2 *scratch, char *texts) {
	memset(texts, 0, (size_t)ne * nf * WG_STRING);
	int r = ask(t, handle, e, ne, f, nf, live, scratch);
	if (r != ST_OK) return r;
	for (uint32_t i = 0; i < ne * nf; i++) {
		const wg_value2 *v = &scratch[i];
		long at = v->field ? index_of(v, i, e, ne, f, nf) : -1;
		if (at < 0 || v->type != 's' || v->status != ST_OK) continue;
		memcpy(texts + at * WG_STRING, v->value.str, WG_STRING - 1);
	}
	return ST_OK;
}

// history is the user data of take_value.
struct history {
	const wg_entity *e;
	const int64_t *after_us;
	uint32_t n;
	wg_event *out;
	int room, count;
};

// take_value is the library's callback for each single value of a history
// (helperGetValuesSince in DcgmApi.cpp). A result other than 0 ends the history.
static int take_value(int32_t kind, uint32_t id, wg_value1 *values, int count, void *data) {
	struct history *h = data;
	for (uint32_t i = 0; i < h->n; i++) {
		if (h->e[i].kind != kind || h->e[i].id != id) continue;
		if (count < 1 || values->micros <= h->after_us[i]) continue;
		if (h->count == h->room) return 1;
		h->out[h->count++] =
		    (wg_event){.cell = wg_decode(values->type, values->status, values->micros, values->value.i64, values->value.dbl), .of = i};
	}
	return 0;
}

int wg_since(const wg_table *t, uintptr_t handle, uintptr_t group, uintptr_t fields, const wg_entity *e, const int64_t *after_us,
             uint32_t n, wg_event *out, int *count) {
	struct history h = {.e = e, .after_us = after_us, .n = n, .out = out, .room = *count};
	int64_t from = INT64_MAX;
	for (uint32_t i = 0; i < n; i++)
		if (after_us[i] < from) from = after_us[i];
	long long next = 0;
	int r = CALL(dcgmGetValuesSince_v2, handle, group, fields, n ? from + 1 : 0, &next, take_value, &h);
	*count = r == ST_OK || r == ST_NO_DATA ? h.count : 0;
	return r == ST_NO_DATA ? ST_OK : r;
}

int wg_prof_groups(const wg_table *t, uintptr_t handle, uint32_t gpu, wg_metric_groups3 *out) {
	FRESH(out, wg_metric_groups3, 3);
	out->gpu = gpu;
	int r = CALL(dcgmProfGetSupportedMetricGroups, handle, out);
	if (out->group_count > 10) out->group_count = 10;
	for (uint32_t i = 0; i < 10; i++)
		if (out->groups[i].field_count > 64) out->groups[i].field_count = 64;
	return r;
}

int wg_health_watch(const wg_table *t, uintptr_t handle, uintptr_t group, uint32_t systems, int64_t every_us, double keep_s) {
	wg_health_set2 p = {
	    .version = WG_VERSION(wg_health_set2, 2), .group = group, .systems = systems, .interval_us = every_us, .keep_s = keep_s};
	return CALL(dcgmHealthSet_v2, handle, &p);
}

int wg_health(const wg_table *t, uintptr_t handle, uintptr_t group, wg_health5 *out) {
	FRESH(out, wg_health5, 5);
	int r = CALL(dcgmHealthCheck, handle, group, out);
	if (out->count > WG_MAX_INCIDENTS) out->count = WG_MAX_INCIDENTS;
	return r;
}
