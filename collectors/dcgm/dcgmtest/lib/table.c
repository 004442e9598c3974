// A table of values by entity and field, open addressing.
#include "fake.h"

#include <stdlib.h>

static size_t slot_of(const struct values *t, int kind, int64_t id, int field) {
	uint64_t h = (uint64_t)(uint32_t)kind * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)id * UINT64_C(0xc2b2ae3d27d4eb4f) ^
	             (uint64_t)(uint32_t)field * UINT64_C(0x165667b19e3779f9);
	h ^= h >> 29;
	size_t i = (size_t)(h * UINT64_C(0xbf58476d1ce4e5b9) >> 20) & (t->capacity - 1);
	while (t->slots[i].field && !(t->slots[i].kind == kind && t->slots[i].id == id && t->slots[i].field == field))
		i = (i + 1) & (t->capacity - 1);
	return i;
}

static const struct value *exact(const struct values *t, int kind, int64_t id, int field) {
	const struct value *v = &t->slots[slot_of(t, kind, id, field)];
	return v->field ? v : NULL;
}

// find_value prefers a value of one entity to a value of all.
const struct value *find_value(const struct values *t, int kind, int64_t id, int field) {
	if (!t->used) return NULL;
	const struct value *v = exact(t, kind, id, field);
	if (!v) v = exact(t, kind, ANY, field);
	if (!v) v = exact(t, ANY, ANY, field);
	return v;
}

static void grow(struct values *t) {
	struct values old = *t;
	t->capacity = old.capacity ? 2 * old.capacity : 1024;
	t->slots = calloc(t->capacity, sizeof *t->slots);
	if (!t->slots) abort();
	for (size_t i = 0; i < old.capacity; i++) {
		const struct value *v = &old.slots[i];
		if (v->field) t->slots[slot_of(t, v->kind, v->id, v->field)] = *v;
	}
	free(old.slots);
}

// put_value returns a new or cleared entry.
struct value *put_value(struct values *t, int kind, int64_t id, int field) {
	if (2 * (t->used + 1) > t->capacity) grow(t);
	struct value *v = &t->slots[slot_of(t, kind, id, field)];
	if (!v->field) t->used++;
	free(v->text);
	*v = (struct value){.kind = kind, .id = id, .field = field};
	return v;
}

void free_values(struct values *t) {
	for (size_t i = 0; i < t->capacity; i++) free(t->slots[i].text);
	free(t->slots);
	*t = (struct values){0};
}
