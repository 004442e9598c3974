// Calls into libdcgm.so.4 through a table of addresses. Nothing here is linked
// against the library: an address that is missing makes its call answer
// WG_NO_SYMBOL instead of ending the process.
#ifndef WARPGAUGE_DCGM_CALLS_H
#define WARPGAUGE_DCGM_CALLS_H

#include <stddef.h>

#include "abi_linux.h"

// Answers of ours, outside DCGM's range.
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

// wg_function_name is the symbol of an index of the table, NULL past its end.
const char *wg_function_name(int index);

// One decoded value. status is DCGM's; value is NaN if there is none (blank,
// refused, not numeric), and sentinel says which of DCGM's blanks it was: 1 for
// _BLANK, 2 _NOT_FOUND, 3 _NOT_SUPPORTED, 4 _NOT_PERMISSIONED, 0 none.
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

// wg_entities fills ids and count (capacity in, number out).
int wg_entities(const wg_table *t, uintptr_t handle, int kind, int only_supported, uint32_t *ids, int *count);
int wg_hierarchy(const wg_table *t, uintptr_t handle, wg_hierarchy2 *out);
int wg_cpus(const wg_table *t, uintptr_t handle, wg_cpus1 *out);
// wg_links asks in the newest version that the library takes.
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
// wg_value2. live asks the driver and not the engine's cache, which may take
// as long as the driver does. What the answer does not hold gets status
// DCGM_ST_NO_DATA.
int wg_latest(const wg_table *t, uintptr_t handle, const wg_entity *e, uint32_t ne, const uint16_t *f, uint32_t nf, int live,
              wg_value2 *scratch, wg_cell *cells);
// wg_texts is the same for text: WG_STRING bytes each, empty if there is
// none.
int wg_texts(const wg_table *t, uintptr_t handle, const wg_entity *e, uint32_t ne, const uint16_t *f, uint32_t nf, int live,
             wg_value2 *scratch, char *texts);
// One value of a history, and which of the entities asked for it is of.
typedef struct {
	wg_cell cell;
	uint32_t of;
	uint32_t unused;
} wg_event;

// wg_since reads the values that entities of a group have of the one field of a field
// group, entity by entity, oldest first: of each those after its own time. count is
// the capacity in, the number out; what has no room is left out.
int wg_since(const wg_table *t, uintptr_t handle, uintptr_t group, uintptr_t fields, const wg_entity *e, const int64_t *after_us,
             uint32_t n, wg_event *out, int *count);

int wg_prof_groups(const wg_table *t, uintptr_t handle, uint32_t gpu, wg_metric_groups3 *out);
int wg_health_watch(const wg_table *t, uintptr_t handle, uintptr_t group, uint32_t systems, int64_t every_us, double keep_s);
int wg_health(const wg_table *t, uintptr_t handle, uintptr_t group, wg_health5 *out);

// wg_decode turns one value into a number.
wg_cell wg_decode(uint16_t type, int32_t status, int64_t micros, int64_t i64, double dbl);

#endif
