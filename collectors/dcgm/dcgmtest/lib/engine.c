// The state that an engine keeps for its clients: connections, groups, field groups
// and watches.
#include "fake.h"

#include <stdlib.h>
#include <string.h>

struct field_group {
	uintptr_t id, owner;
	char name[256];
	unsigned short fields[DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP];
	int count;
};

struct watch {
	uintptr_t group, fields, owner; // group 0: free
	int64_t start, every;
};

static struct connection connections[MAX_CONNECTIONS];
static struct group groups[DCGM_MAX_NUM_GROUPS];
static struct field_group field_groups[DCGM_MAX_NUM_FIELD_GROUPS];
static struct watch watches[2 * DCGM_MAX_NUM_FIELD_GROUPS];
static struct values watch_table; // by entity and field: base is the start, slope the interval, code the owner
static uintptr_t serial = 1;
static int64_t embedded_since; // µs

enum { EMBEDDED_HANDLE = 0x7fffffff };

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

static void plus(unsigned w) { atomic_fetch_add(word(w), 1); }
static void minus(unsigned w) { atomic_fetch_sub(word(w), 1); }

bool has_entity(int kind, int64_t id) {
	for (int i = 0; i < S->entity_count; i++)
		if (S->entities[i].kind == kind && S->entities[i].id == id) return true;
	return kind == DCGM_FE_NONE;
}

bool profiling_field(int field) { return field >= 1001 && field < 1100; }

struct connection *connection_of(dcgmHandle_t h) {
	for (int i = 0; i < MAX_CONNECTIONS; i++)
		if (h && connections[i].handle == h)
			return connections[i].engine == atomic_load(word(WORD_ENGINE)) ? &connections[i] : NULL;
	return NULL;
}

// rebuild fills the table of watches. The engine keeps one watch per client, entity and
// field; the last one sets the interval. Watched fields have a history since the engine
// began, as if another client had watched them before.
static void rebuild(void) {
	free_values(&watch_table);
	for (const struct watch *w = watches; w < watches + COUNT(watches); w++) {
		const struct group *g = group_of(w->group);
		const unsigned short *ids;
		for (int m = 0; g && m < g->count; m++)
			for (int f = 0; f < fields_of(w->fields, &ids); f++) {
				const dcgmGroupEntityPair_t *e = &g->members[m];
				const struct value *there = find_value(&watch_table, (int)e->entityGroupId, e->entityId, ids[f]);
				double start = there ? there->base : (double)w->start, every = (double)w->every;
				if (there && there->code != (int)w->owner && there->slope < every) every = there->slope;
				struct value *v = put_value(&watch_table, (int)e->entityGroupId, e->entityId, ids[f]);
				v->base = start;
				v->slope = every;
				v->code = (int)w->owner;
			}
	}
}

int64_t engine_since(dcgmHandle_t h) { return h == EMBEDDED_HANDLE ? embedded_since : (int64_t)atomic_load(word(WORD_SINCE)); }

bool watched(int kind, int64_t id, int field, int64_t *start, int64_t *every) {
	const struct value *v = find_value(&watch_table, kind, id, field);
	if (!v) return false;
	*start = (int64_t)v->base;
	*every = (int64_t)v->slope;
	return true;
}

static void drop_watch(struct watch *w) {
	*w = (struct watch){0};
	minus(WORD_WATCHES);
}

static void drop_field_group(struct field_group *f) {
	for (int i = 0; i < COUNT(watches); i++)
		if (watches[i].group && watches[i].fields == f->id) drop_watch(&watches[i]);
	*f = (struct field_group){0};
	minus(WORD_FIELD_GROUPS);
}

static void drop_group(struct group *g) {
	if (g->health) minus(WORD_HEALTH_WATCHES);
	*g = (struct group){0};
	minus(WORD_GROUPS);
}

// forget releases everything that a connection has created.
static void forget(struct connection *c) {
	for (int i = 0; i < COUNT(watches); i++)
		if (watches[i].group && watches[i].owner == c->handle) drop_watch(&watches[i]);
	for (int i = 0; i < DCGM_MAX_NUM_GROUPS; i++)
		if (groups[i].id && groups[i].owner == c->handle) drop_group(&groups[i]);
	for (int i = 0; i < DCGM_MAX_NUM_FIELD_GROUPS; i++)
		if (field_groups[i].id && field_groups[i].owner == c->handle) drop_field_group(&field_groups[i]);
	rebuild();
}

void sweep(void) {
	static uint64_t swept;
	uint64_t engine = atomic_load(word(WORD_ENGINE));
	if (swept == engine) return;
	swept = engine;
	for (int i = 0; i < MAX_CONNECTIONS; i++)
		if (connections[i].handle && connections[i].engine != engine && !connections[i].embedded) forget(&connections[i]);
}

static struct connection *free_connection(void) {
	for (int i = 0; i < MAX_CONNECTIONS; i++)
		if (!connections[i].handle) return &connections[i];
	return NULL;
}

// A second dcgmInit does nothing (DcgmApi.cpp).
static bool initialised;

dcgmReturn_t dcgmInit(void) {
	ENTER(dcgmInit);
	if (!initialised) plus(WORD_INITS);
	initialised = true;
	return leave(DCGM_ST_OK);
}

static dcgmReturn_t embed(dcgmHandle_t *out) {
	if (S->no_embedding) return S->no_embedding;
	for (int i = 0; i < MAX_CONNECTIONS; i++)
		if (connections[i].embedded) return DCGM_ST_OK; // without a handle, as NVIDIA's
	struct connection *c = free_connection();
	if (!c) return DCGM_ST_MAX_LIMIT;
	*c = (struct connection){EMBEDDED_HANDLE, atomic_load(word(WORD_ENGINE)), true};
	embedded_since = now_micros();
	plus(WORD_EMBEDDED);
	*out = c->handle;
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmStartEmbedded_v2(dcgmStartEmbeddedV2Params_v1 *p) {
	ENTER(dcgmStartEmbedded_v2);
	if (p->version != dcgmStartEmbeddedV2Params_version2) return wrong_version();
	dcgmStartEmbeddedV2Params_v2 *q = (dcgmStartEmbeddedV2Params_v2 *)p;
	set_text(q->logFile ? q->logFile : "");
	atomic_store(word(WORD_SEVERITY), (uint64_t)q->severity + 1);
	return leave(q->opMode == DCGM_OPERATION_MODE_AUTO ? embed(&q->dcgmHandle) : DCGM_ST_BADPARAM);
}

static dcgmReturn_t disconnect(dcgmHandle_t h, bool embedded) {
	for (int i = 0; i < MAX_CONNECTIONS; i++) {
		struct connection *c = &connections[i];
		if (!h || c->handle != h || c->embedded != embedded) continue;
		bool lost = !connection_of(h);
		forget(c);
		*c = (struct connection){0};
		minus(embedded ? WORD_EMBEDDED : WORD_CONNECTIONS);
		return lost && !embedded ? DCGM_ST_CONNECTION_NOT_VALID : DCGM_ST_OK;
	}
	return embedded ? DCGM_ST_UNINITIALIZED : DCGM_ST_CONNECTION_NOT_VALID;
}

dcgmReturn_t dcgmStopEmbedded(dcgmHandle_t h) {
	ENTER(dcgmStopEmbedded);
	return leave(disconnect(h, true));
}

dcgmReturn_t dcgmDisconnect(dcgmHandle_t h) {
	ENTER(dcgmDisconnect);
	return leave(disconnect(h, false));
}

static dcgmReturn_t attach(const char *address, dcgmHandle_t *out) {
	if (!address || !*address) return leave(DCGM_ST_BADPARAM);
	if (!initialised) return leave(DCGM_ST_UNINITIALIZED);
	if (S->down) return leave((dcgmReturn_t)S->down);
	struct connection *c = free_connection();
	if (!c) return leave(DCGM_ST_MAX_LIMIT);
	*c = (struct connection){serial++, atomic_load(word(WORD_ENGINE)), false};
	plus(WORD_CONNECTIONS);
	*out = c->handle;
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmConnect_v2(const char *address, dcgmConnectV2Params_t *p, dcgmHandle_t *out) {
	ENTER(dcgmConnect_v2);
	if (p->version != dcgmConnectV2Params_version2) return wrong_version();
	return attach(address, out);
}

dcgmReturn_t dcgmConnect_v3(const char *address, dcgmConnectV3Params_t *p, dcgmHandle_t *out) {
	ENTER(dcgmConnect_v3);
	if (p->version != dcgmConnectV3Params_version1) return wrong_version();
	if (!strstr(address, "://")) return leave(DCGM_ST_BADPARAM);
	return attach(address, out);
}

static struct group *mutable_group(dcgmGpuGrp_t id) {
	for (int i = 0; i < DCGM_MAX_NUM_GROUPS; i++)
		if (id && groups[i].id == id) return &groups[i];
	return NULL;
}

const struct group *group_of(dcgmGpuGrp_t id) { return mutable_group(id); }

dcgmReturn_t dcgmGroupCreate(dcgmHandle_t h, dcgmGroupType_t type, const char *name, dcgmGpuGrp_t *out) {
	ENTER(dcgmGroupCreate);
	struct connection *c = connection_of(h);
	if (!c) return leave(DCGM_ST_CONNECTION_NOT_VALID);
	if (type != DCGM_GROUP_EMPTY) return leave(DCGM_ST_BADPARAM);
	for (int i = 0; i < DCGM_MAX_NUM_GROUPS; i++) {
		struct group *g = &groups[i];
		if (g->id) continue;
		*g = (struct group){.id = serial++, .owner = c->handle};
		(void)name;
		plus(WORD_GROUPS);
		*out = g->id;
		return leave(DCGM_ST_OK);
	}
	return beyond_limit(DCGM_ST_MAX_LIMIT);
}

dcgmReturn_t dcgmGroupAddEntity(dcgmHandle_t h, dcgmGpuGrp_t id, dcgm_field_entity_group_t kind, dcgm_field_eid_t entity) {
	ENTER(dcgmGroupAddEntity);
	struct group *g = mutable_group(id);
	if (!connection_of(h)) return leave(DCGM_ST_CONNECTION_NOT_VALID);
	if (!g || !has_entity((int)kind, entity)) return leave(DCGM_ST_BADPARAM);
	if (g->count == DCGM_GROUP_MAX_ENTITIES_V2) return beyond_limit(DCGM_ST_MAX_LIMIT);
	for (int i = 0; i < g->count; i++)
		if (g->members[i].entityGroupId == kind && g->members[i].entityId == entity) return leave(DCGM_ST_BADPARAM);
	g->members[g->count++] = (dcgmGroupEntityPair_t){kind, entity};
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmGroupDestroy(dcgmHandle_t h, dcgmGpuGrp_t id) {
	ENTER(dcgmGroupDestroy);
	struct group *g = mutable_group(id);
	if (!connection_of(h)) return leave(DCGM_ST_CONNECTION_NOT_VALID);
	if (!g) return leave(DCGM_ST_NOT_CONFIGURED);
	drop_group(g);
	return leave(DCGM_ST_OK);
}

static struct field_group *field_group_of(dcgmFieldGrp_t id) {
	for (int i = 0; i < DCGM_MAX_NUM_FIELD_GROUPS; i++)
		if (id && field_groups[i].id == id) return &field_groups[i];
	return NULL;
}

int fields_of(dcgmFieldGrp_t id, const unsigned short **ids) {
	const struct field_group *f = field_group_of(id);
	if (f) *ids = f->fields;
	return f ? f->count : 0;
}

dcgmReturn_t dcgmFieldGroupCreate(dcgmHandle_t h, int n, const unsigned short *ids, const char *name, dcgmFieldGrp_t *out) {
	ENTER(dcgmFieldGroupCreate);
	struct connection *c = connection_of(h);
	struct field_group *room = NULL;
	if (!c) return leave(DCGM_ST_CONNECTION_NOT_VALID);
	if (n < 1) return leave(DCGM_ST_BADPARAM);
	if (n >= DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP) return beyond_limit(DCGM_ST_BADPARAM); // DCGM's own check is also off by one
	for (int i = 0; i < n; i++)
		if (ids[i] >= MAX_FIELDS || !S->types[ids[i]]) return leave(DCGM_ST_BADPARAM); // like DcgmFieldGroup.cpp
	for (int i = 0; i < DCGM_MAX_NUM_FIELD_GROUPS; i++) {
		if (field_groups[i].id && !strcmp(field_groups[i].name, name)) return leave(DCGM_ST_DUPLICATE_KEY);
		if (!field_groups[i].id && !room) room = &field_groups[i];
	}
	if (!room) return beyond_limit(DCGM_ST_MAX_LIMIT);
	*room = (struct field_group){.id = serial++, .owner = c->handle, .count = n};
	strncpy(room->name, name, sizeof room->name - 1);
	memcpy(room->fields, ids, (size_t)n * sizeof *ids);
	plus(WORD_FIELD_GROUPS);
	*out = room->id;
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmFieldGroupDestroy(dcgmHandle_t h, dcgmFieldGrp_t id) {
	ENTER(dcgmFieldGroupDestroy);
	struct field_group *f = field_group_of(id);
	if (!connection_of(h)) return leave(DCGM_ST_CONNECTION_NOT_VALID);
	if (!f) return leave(DCGM_ST_NO_DATA);
	drop_field_group(f);
	return leave(DCGM_ST_OK);
}

// refusal returns the status of a watch: one refused field of one entity refuses the whole watch.
static dcgmReturn_t refusal(const struct group *g, const struct field_group *f) {
	for (int i = 0; i < f->count; i++) {
		if (S->no_profiling && profiling_field(f->fields[i])) return S->no_profiling;
		for (int m = 0; m < g->count; m++) {
			const struct value *no = find_value(&S->refused, (int)g->members[m].entityGroupId, g->members[m].entityId, f->fields[i]);
			if (no && no->code) return no->code;
		}
	}
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmWatchFields(dcgmHandle_t h, dcgmGpuGrp_t group, dcgmFieldGrp_t fields, long long every, double keep, int samples) {
	ENTER(dcgmWatchFields);
	struct connection *c = connection_of(h);
	const struct group *g = group_of(group);
	const struct field_group *f = field_group_of(fields);
	if (!c) return leave(DCGM_ST_CONNECTION_NOT_VALID);
	if (!g || !f || every <= 0 || (keep <= 0 && samples <= 0)) return leave(DCGM_ST_BADPARAM);
	if (!g->count) return leave(DCGM_ST_GROUP_IS_EMPTY);
	int profiling = 0;
	for (int i = 0; i < f->count; i++) profiling += profiling_field(f->fields[i]);
	if (profiling > DCGM_PROF_MAX_FIELD_IDS_PER_GROUP_V2) return beyond_limit(DCGM_ST_GENERIC_ERROR);
	dcgmReturn_t no = refusal(g, f);
	if (no != DCGM_ST_OK) return leave(no);
	for (int i = 0; i < COUNT(watches); i++) {
		if (watches[i].group) continue;
		watches[i] = (struct watch){group, fields, c->handle, now_micros(), every};
		plus(WORD_WATCHES);
		rebuild();
		return leave(DCGM_ST_OK);
	}
	return beyond_limit(DCGM_ST_MAX_LIMIT);
}

dcgmReturn_t dcgmUnwatchFields(dcgmHandle_t h, dcgmGpuGrp_t group, dcgmFieldGrp_t fields) {
	ENTER(dcgmUnwatchFields);
	struct connection *c = connection_of(h);
	const struct group *g = group_of(group);
	const struct field_group *f = field_group_of(fields);
	if (!c) return leave(DCGM_ST_CONNECTION_NOT_VALID);
	if (!g || !f) return leave(DCGM_ST_BADPARAM);
	for (int i = 0; i < COUNT(watches); i++)
		if (watches[i].owner == c->handle && watches[i].group == group && watches[i].fields == fields) drop_watch(&watches[i]);
	rebuild();
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmUpdateAllFields(dcgmHandle_t h, int wait) {
	(void)wait;
	ENTER(dcgmUpdateAllFields);
	return leave(connection_of(h) ? DCGM_ST_OK : DCGM_ST_CONNECTION_NOT_VALID);
}

dcgmReturn_t dcgmHealthSet_v2(dcgmHandle_t h, dcgmHealthSetParams_v2 *p) {
	ENTER(dcgmHealthSet_v2);
	struct group *g = mutable_group(p->groupId);
	if (p->version != dcgmHealthSetParams_version2) return wrong_version();
	if (!connection_of(h)) return leave(DCGM_ST_CONNECTION_NOT_VALID);
	if (!g || p->updateInterval <= 0 || p->maxKeepAge <= 0) return leave(DCGM_ST_BADPARAM);
	if (!g->health && p->systems) plus(WORD_HEALTH_WATCHES);
	if (g->health && !p->systems) minus(WORD_HEALTH_WATCHES);
	g->health = (unsigned)p->systems;
	return leave(DCGM_ST_OK);
}
