// Calls into libdcgm.so.4 through a table of addresses. Nothing here links
// against the library: a call whose address is missing returns WG_NO_SYMBOL
// instead of ending the process.
#ifndef WARPGAUGE_DCGM_CALLS_H
#define WARPGAUGE_DCGM_CALLS_H

#include <stddef.h>

#include "abi_linux.h"

// Our own results, outside DCGM's range.
enum {
	WG_NO_SYMBOL = -1000, // the library lacks the function
};

// The functions we call, in the order of the table.
#define WG_FUNCTIONS(F)                                                                              \
	F(dcgmInit, (void))                                                                          \
	F(dcgmStartEmbedded_v2, (wg_embedded2 *))                                                    \
	F(dcgmStopEmbedded, (uintptr_t))                                                             \
	F(dcgmConnect_v2, (const char *, wg_connect2 *, uintptr_t *))                                \
	F(dcgmConnect_v3, (const char *, wg_connect3 *, uintptr_t *))                                \
	F(dcgmDisconnect, (uintptr_t))                                                               \
	F(dcgmVersionInfo, (wg_version2 *))                                                          \
	F(dcgmHostengineVersionInfo, (uintptr_t, wg_version2 *))                                     \
	F(dcgmGetEntityGroupEntities, (uintptr_t, int32_t, uint32_t *, int *, uint32_t))             \
	F(dcgmGetGpuInstanceHierarchy, (uintptr_t, wg_hierarchy2 *))                                 \
	F(dcgmGetCpuHierarchy, (uintptr_t, wg_cpus1 *))                                              \
	F(dcgmGetNvLinkLinkStatus, (uintptr_t, void *))                                              \
	F(dcgmGetNvLinkP2PStatus, (uintptr_t, wg_peers1 *))                                          \
	F(dcgmGroupCreate, (uintptr_t, int32_t, const char *, uintptr_t *))                          \
	F(dcgmGroupAddEntity, (uintptr_t, uintptr_t, int32_t, uint32_t))                             \
	F(dcgmGroupDestroy, (uintptr_t, uintptr_t))                                                  \
	F(dcgmFieldGroupCreate, (uintptr_t, int, const uint16_t *, const char *, uintptr_t *))       \
	F(dcgmFieldGroupDestroy, (uintptr_t, uintptr_t))                                             \
	F(dcgmWatchFields, (uintptr_t, uintptr_t, uintptr_t, long long, double, int))                \
	F(dcgmUnwatchFields, (uintptr_t, uintptr_t, uintptr_t))                                      \
	F(dcgmEntitiesGetLatestValues, (uintptr_t, const wg_entity *, uint32_t, const uint16_t *,    \
	                                uint32_t, uint32_t, wg_value2 *))                            \
	F(dcgmGetValuesSince_v2, (uintptr_t, uintptr_t, uintptr_t, long long, long long *,           \
	                          wg_value_callback, void *))                                        \
	F(dcgmProfGetSupportedMetricGroups, (uintptr_t, wg_metric_groups3 *))                        \
	F(dcgmHealthSet_v2, (uintptr_t, wg_health_set2 *))                                           \
	F(dcgmHealthCheck, (uintptr_t, uintptr_t, wg_health5 *))

#define WG_INDEX(name, args) WG_##name,
enum { WG_FUNCTIONS(WG_INDEX) WG_FUNCTION_COUNT };
#undef WG_INDEX

typedef struct {
	void *at[WG_FUNCTION_COUNT];
} wg_table;

// wg_function_name returns the symbol at an index of the table, NULL past its end.
const char *wg_function_name(int index);

// One decoded value. status is DCGM's. value is NaN without a number (blank,
// refused, not numeric). sentinel is the kind of blank: 0 for no blank, 1 _BLANK,
// 2 _NOT_FOUND, 3 _NOT_SUPPORTED, 4 _NOT_PERMISSIONED.
typedef struct {
	double value;
	int64_t micros; // when the engine read it, since 1970; 0 never
	int32_t status;
	int32_t sentinel;
} wg_cell;

int wg_init(const wg_table *t);
int wg_start_embedded(const wg_table *t, const char *log_file, int severity, uintptr_t *handle);
int wg_stop_embedded(const wg_table *t, uintptr_t handle);
int wg_connect(const wg_table *t, const char *address, int is_url, int is_unix, unsigned timeout_ms, uintptr_t *handle);
int wg_disconnect(const wg_table *t, uintptr_t handle);
int wg_library_version(const wg_table *t, wg_version2 *out);
int wg_version(const wg_table *t, uintptr_t handle, wg_version2 *out);

// wg_entities fills ids. count is the capacity on entry and the number on return.
int wg_entities(const wg_table *t, uintptr_t handle, int kind, int only_supported, uint32_t *ids, int *count);
int wg_hierarchy(const wg_table *t, uintptr_t handle, wg_hierarchy2 *out);
int wg_cpus(const wg_table *t, uintptr_t handle, wg_cpus1 *out);
// wg_links uses the newest struct version that the library accepts.
int wg_links(const wg_table *t, uintptr_t handle, wg_links5 *out);
int wg_peers(const wg_table *t, uintptr_t handle, wg_peers1 *out);

int wg_group_create(const wg_table *t, uintptr_t handle, const char *name, const wg_entity *e, int n, uintptr_t *group);
int wg_group_destroy(const wg_table *t, uintptr_t handle, uintptr_t group);
int wg_fields_create(const wg_table *t, uintptr_t handle, const char *name, const uint16_t *f, int n, uintptr_t *fields);
int wg_fields_destroy(const wg_table *t, uintptr_t handle, uintptr_t fields);
int wg_watch(const wg_table *t, uintptr_t handle, uintptr_t group, uintptr_t fields, int64_t every_us, double keep_s);
int wg_unwatch(const wg_table *t, uintptr_t handle, uintptr_t group, uintptr_t fields);

// wg_latest reads the newest value of every field of every entity in one call.
// cells has room for ne × nf, entity by entity; scratch has room for as many
// wg_value2. live reads from the driver instead of the engine's cache and takes
// as long as the driver does. Cells that are missing in the reply get status
// DCGM_ST_NO_DATA.
int wg_latest(const wg_table *t, uintptr_t handle, const wg_entity *e, uint32_t ne, const uint16_t *f, uint32_t nf, int live,
              wg_value2 *scratch, wg_cell *cells);
// wg_texts is wg_latest for texts: WG_STRING bytes each, empty without a
// text.
int wg_texts(const wg_table *t, uintptr_t handle, const wg_entity *e, uint32_t ne, const uint16_t *f, uint32_t nf, int live,
             wg_value2 *scratch, char *texts);
// One value of a history, with the index of its entity in the request.
typedef struct {
	wg_cell cell;
	uint32_t of;
	uint32_t unused;
} wg_event;

// wg_since reads the history of a field group's only field, entity by entity, oldest
// first. Each entity has its own start time. count is the capacity on entry and the
// number on return; wg_since drops values without room.
int wg_since(const wg_table *t, uintptr_t handle, uintptr_t group, uintptr_t fields, const wg_entity *e, const int64_t *after_us,
             uint32_t n, wg_event *out, int *count);

int wg_prof_groups(const wg_table *t, uintptr_t handle, uint32_t gpu, wg_metric_groups3 *out);
int wg_health_watch(const wg_table *t, uintptr_t handle, uintptr_t group, uint32_t systems, int64_t every_us, double keep_s);
int wg_health(const wg_table *t, uintptr_t handle, uintptr_t group, wg_health5 *out);

// wg_decode turns one value into a number.
wg_cell wg_decode(uint16_t type, int32_t status, int64_t micros, int64_t i64, double dbl);

#endif
