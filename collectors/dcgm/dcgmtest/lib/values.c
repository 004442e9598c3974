// The engine's value of a field of an entity, and the calls that read it. Values
// are functions of the time at which the engine would have read them.
#include "fake.h"

#include <string.h>

static int64_t frozen_at(int kind, int64_t id) {
	for (int i = 0; i < S->freeze_count; i++) {
		const struct freeze *f = &S->freezes[i];
		if ((f->kind == ANY || f->kind == kind) && (f->id == ANY || f->id == id)) return f->micros;
	}
	return INT64_MAX;
}

// identifies reports whether the engine knows a field without reading the GPU.
static bool identifies(int field) {
	return field == DCGM_FI_DEV_NAME || field == DCGM_FI_DEV_UUID || field == DCGM_FI_DEV_MINOR_NUMBER || field == DCGM_FI_DEV_PCI_BUSID;
}

static bool lost(int kind, int64_t id) {
	for (int i = 0; i < S->lost_count; i++)
		if (S->lost[i].kind == kind && S->lost[i].id == id) return true;
	return false;
}

static const char *blank_text(int which) {
	static const char *const texts[] = {DCGM_STR_BLANK, DCGM_STR_NOT_FOUND, DCGM_STR_NOT_SUPPORTED, DCGM_STR_NOT_PERMISSIONED};
	return texts[which & 3];
}

static void make_blank(struct answer *a, int which) {
	a->i64 = DCGM_INT64_BLANK + which;
	a->dbl = DCGM_FP64_BLANK + which;
	a->text = blank_text(which);
}

// last_xid returns the newest XID of an entity that is not after micros.
static const struct xid *last_xid(int kind, int64_t id, int64_t micros) {
	const struct xid *out = NULL;
	for (int i = 0; i < S->xid_count; i++)
		if (S->xids[i].of.kind == kind && S->xids[i].of.id == id && S->xids[i].micros <= micros && (!out || S->xids[i].micros >= out->micros)) out = &S->xids[i];
	return out;
}

// anything returns a value for a field that the script does not set. It depends on
// field and entity and is plausible.
static double anything(int64_t id, int field) {
	struct range r = S->ranges[field];
	double telling = field * 1000.0 + (double)(id % 1000);
	if ((r.min == 0 && r.max == 0) || (telling >= r.min && telling <= r.max)) return telling;
	return r.min + (r.max - r.min) * (double)((field * 7 + id % 97) % 100) / 100;
}

// as_of returns the value that the engine would have read at a time.
static struct answer as_of(int kind, int64_t id, int field, int64_t micros) {
	struct answer a = {.status = DCGM_ST_OK, .micros = micros, .type = S->types[field], .text = ""};
	const struct value *v = find_value(&S->values, kind, id, field);
	enum value_kind what = v ? v->what : VALUE_NONE;
	if (S->lost_count && lost(kind, id) && !identifies(field)) {
		a.status = DCGM_ST_GPU_IS_LOST;
		make_blank(&a, 0);
		return a;
	}
	switch (what) {
	case VALUE_NONE:
		a.dbl = anything(id, field);
		a.i64 = (int64_t)a.dbl;
		if (a.type == 's') make_blank(&a, 2);
		break;
	case VALUE_NUMBER:
		a.dbl = v->base + v->slope * (double)(micros - S->epoch) / 1e6;
		a.i64 = (int64_t)a.dbl;
		break;
	case VALUE_TEXT: a.text = v->text; break;
	case VALUE_BLANK: make_blank(&a, v->code); break;
	case VALUE_STATUS:
		a.status = v->code;
		make_blank(&a, 0);
		break;
	case VALUE_OMITTED: a.omitted = true; break;
	}
	return a;
}

// polled returns when the engine last read values that it reads every so many µs, 0 if it has not yet.
static int64_t polled(int64_t start, int64_t every, int64_t now) {
	for (int64_t n = (now - start) / every; now >= start; n--) {
		int64_t at = start + n * every + n % 2 * every / 1000 * S->late;
		if (at <= now) return at;
	}
	return 0;
}

// look returns the newest value, from the engine's cache or live.
struct answer look(int kind, int64_t id, int field, bool live) {
	struct answer a = {.status = DCGM_ST_NOT_WATCHED, .type = field < MAX_FIELDS ? S->types[field] : 0, .text = ""};
	int64_t start, every, now = now_micros(), frozen = frozen_at(kind, id);
	if (frozen < now) now = frozen;
	make_blank(&a, 0);
	if (!a.type) {
		a.status = DCGM_ST_UNKNOWN_FIELD;
		return a;
	}
	if (!has_entity(kind, id)) {
		a.status = DCGM_ST_BADPARAM;
		return a;
	}
	if (live) return as_of(kind, id, field, now);
	if (!watched(kind, id, field, &start, &every)) return a;
	int64_t last = polled(start, every, now);
	a.status = DCGM_ST_NO_DATA;
	if (field == DCGM_FI_DEV_XID_ERRORS) {
		const struct xid *x = last_xid(kind, id, now);
		if (!x) return a;
		a.status = DCGM_ST_OK;
		a.micros = x->micros;
		a.i64 = x->code;
		return a;
	}
	return last ? as_of(kind, id, field, last < frozen ? last : frozen) : a;
}

static void fill(char type, const struct answer *a, void *value) {
	switch (type) {
	case 'd': memcpy(value, &a->dbl, sizeof a->dbl); break;
	case 's': strncpy(value, a->text, DCGM_MAX_STR_LENGTH - 1); break;
	case 'b': break;
	default: memcpy(value, &a->i64, sizeof a->i64);
	}
}

static void fill_v2(dcgmFieldValue_v2 *out, int kind, uint32_t id, unsigned short field, const struct answer *a) {
	memset(out, 0, sizeof *out);
	out->version = dcgmFieldValue_version2;
	out->entityGroupId = (dcgm_field_entity_group_t)kind;
	out->entityId = id;
	out->fieldId = field;
	out->fieldType = (unsigned short)a->type;
	out->status = a->status;
	out->ts = a->micros;
	fill(a->type, a, &out->value);
}

static void most_values(uint64_t n) {
	uint64_t before = atomic_load(word(WORD_MOST_VALUES));
	while (n > before && !atomic_compare_exchange_weak(word(WORD_MOST_VALUES), &before, n)) {
	}
}

dcgmReturn_t dcgmEntitiesGetLatestValues(dcgmHandle_t h, dcgmGroupEntityPair_t e[], unsigned ne, unsigned short f[], unsigned nf,
                                         unsigned flags, dcgmFieldValue_v2 out[]) {
	ENTER(dcgmEntitiesGetLatestValues);
	if (!connection_of(h)) return leave(DCGM_ST_CONNECTION_NOT_VALID);
	if (!ne || !nf || (flags & ~(unsigned)DCGM_FV_FLAG_LIVE_DATA)) return leave(DCGM_ST_BADPARAM);
	if (ne > DCGM_GROUP_MAX_ENTITIES_V2 || nf > DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP) return beyond_limit(DCGM_ST_BADPARAM);
	most_values((uint64_t)ne * nf);
	unsigned n = ne * nf, at = 0;
	for (unsigned k = 0; k < n; k++) {
		unsigned i = S->order ? n - 1 - k : k;
		const dcgmGroupEntityPair_t *x = &e[i / nf];
		const struct value *no = flags & DCGM_FV_FLAG_LIVE_DATA ? find_value(&S->refused, (int)x->entityGroupId, x->entityId, f[i % nf]) : NULL;
		if (no && no->code) return leave(no->code);
		struct answer a = look((int)x->entityGroupId, x->entityId, f[i % nf], flags & DCGM_FV_FLAG_LIVE_DATA);
		if (!a.omitted) fill_v2(&out[at++], (int)x->entityGroupId, x->entityId, f[i % nf], &a);
	}
	return leave(DCGM_ST_OK);
}

static void fill_v1(dcgmFieldValue_v1 *out, unsigned short field, const struct answer *a) {
	memset(out, 0, sizeof *out);
	out->version = dcgmFieldValue_version1;
	out->fieldId = field;
	out->fieldType = (unsigned short)a->type;
	out->status = a->status;
	out->ts = a->micros;
	fill(a->type, a, &out->value);
}

dcgmReturn_t dcgmEntityGetLatestValues(dcgmHandle_t h, dcgm_field_entity_group_t kind, int id, unsigned short f[], unsigned nf,
                                       dcgmFieldValue_v1 out[]) {
	ENTER(dcgmEntityGetLatestValues);
	if (!connection_of(h)) return leave(DCGM_ST_CONNECTION_NOT_VALID);
	if (nf > DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP) return beyond_limit(DCGM_ST_BADPARAM);
	for (unsigned i = 0; i < nf; i++) {
		struct answer a = look((int)kind, id, f[i], false);
		fill_v1(&out[i], f[i], &a);
	}
	return leave(DCGM_ST_OK);
}

// tell calls the callback with one value of a history.
static int tell(dcgmFieldValueEntityEnumeration_f back, void *data, const dcgmGroupEntityPair_t *e, unsigned short field, int64_t micros,
                int64_t value) {
	dcgmFieldValue_v1 v;
	fill_v1(&v, field, &(struct answer){.type = 'i', .micros = micros, .i64 = value, .text = ""});
	return back(e->entityGroupId, e->entityId, &v, 1, data);
}

// Oldest first. XIDs have a history; any other field has one value from the engine's
// start.
dcgmReturn_t dcgmGetValuesSince_v2(dcgmHandle_t h, dcgmGpuGrp_t group, dcgmFieldGrp_t fields, long long since, long long *next,
                                   dcgmFieldValueEntityEnumeration_f back, void *data) {
	ENTER(dcgmGetValuesSince_v2);
	const struct group *g = group_of(group);
	const unsigned short *ids;
	int count = fields_of(fields, &ids), stop = 0;
	if (!connection_of(h)) return leave(DCGM_ST_CONNECTION_NOT_VALID);
	if (!g || count < 1) return leave(DCGM_ST_BADPARAM);
	*next = now_micros() + 1;
	for (int m = 0; m < g->count && !stop; m++) {
		const dcgmGroupEntityPair_t *e = &g->members[m];
		int64_t start, every, frozen = frozen_at((int)e->entityGroupId, e->entityId);
		if (!watched((int)e->entityGroupId, e->entityId, ids[0], &start, &every)) return leave(DCGM_ST_NOT_WATCHED);
		if (ids[0] != DCGM_FI_DEV_XID_ERRORS) {
			if (engine_since(h) >= since) stop = tell(back, data, e, ids[0], engine_since(h), 0);
			continue;
		}
		for (int i = 0; i < S->xid_count && !stop; i++) {
			const struct xid *x = &S->xids[i];
			if (x->of.kind == (int)e->entityGroupId && x->of.id == e->entityId && x->micros >= since && x->micros >= engine_since(h) && x->micros <= frozen)
				stop = tell(back, data, e, ids[0], x->micros, x->code);
		}
	}
	return leave(DCGM_ST_OK);
}
