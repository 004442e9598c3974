// The lines of the script. README.md explains them.
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool code_of(const char *name, int *out) {
	char *end;
	*out = (int)strtol(name, &end, 0);
	return end != name && *end == 0;
}

// integer_or_any reads an integer, or ANY for "*".
static int64_t integer_or_any(struct line *l) {
	char *w = next_word(l);
	return strcmp(w, "*") ? (int64_t)integer_of(l, w) : ANY;
}

static struct entity entity(struct line *l) {
	int kind = (int)integer_or_any(l);
	return (struct entity){kind, integer_or_any(l)};
}

// word_to copies the next word, which must exist.
static void word_to(struct line *l, char *out, size_t size) {
	char *w = next_word(l);
	if (!*w) fail(l, "%s", "a word is missing");
	snprintf(out, size, "%s", w);
}

static void read_engine(struct state *s, struct line *l) {
	char *key = next_word(l);
	if (!strcmp(key, "version")) word_to(l, s->version, sizeof s->version);
	else if (!strcmp(key, "library")) word_to(l, s->library, sizeof s->library);
	else if (!strcmp(key, "down")) s->down = (int)integer(l);
	else if (!strcmp(key, "embedding")) s->no_embedding = (int)integer(l);
	else if (!strcmp(key, "profiling")) s->no_profiling = (int)integer(l);
	else if (!strcmp(key, "unlisted")) {
		uint64_t kind = integer(l);
		if (kind >= DCGM_FE_COUNT) fail(l, "%s", "no such kind of entities");
		else s->unlisted[kind] = (int)integer(l);
	} else if (!strcmp(key, "links")) s->links_version = (int)integer(l);
	else if (!strcmp(key, "order")) s->order = (int)integer(l);
	else if (!strcmp(key, "counts")) s->counts = (unsigned)integer(l);
	else if (!strcmp(key, "epoch")) s->epoch = (int64_t)integer(l);
	else if (!strcmp(key, "late")) s->late = (int)integer(l);
	else fail(l, "an engine has no \"%s\"", key);
}

static int field_of(struct line *l) {
	uint64_t id = integer(l);
	if (id == 0 || id >= MAX_FIELDS) fail(l, "%s", "fields are from 1 to 4095");
	return (int)id;
}

static void read_value(struct state *s, struct line *l) {
	struct entity of = entity(l);
	int field = field_of(l);
	if (l->problem[0]) return;
	struct value *v = put_value(&s->values, of.kind, of.id, field);
	char *what = next_word(l);
	if (!strcmp(what, "num")) {
		v->what = VALUE_NUMBER;
		v->base = number(l);
		if (more(l)) v->slope = number(l);
	} else if (!strcmp(what, "text")) {
		v->what = VALUE_TEXT;
		v->text = strdup(l->rest);
	} else if (!strcmp(what, "blank")) {
		v->what = VALUE_BLANK;
		v->code = (int)integer(l);
	} else if (!strcmp(what, "status")) {
		v->what = VALUE_STATUS;
		v->code = (int)integer(l);
	} else if (!strcmp(what, "omitted")) {
		v->what = VALUE_OMITTED;
	} else {
		fail(l, "no kind of value is \"%s\"", what);
	}
}

static void read_refusal(struct state *s, struct line *l) {
	struct entity of = entity(l);
	int field = field_of(l), code = (int)integer(l);
	if (!l->problem[0]) put_value(&s->refused, of.kind, of.id, field)->code = code;
}

static void read_entity(struct state *s, struct line *l) {
	struct entity e = entity(l);
	*(struct entity *)append(&s->entities, &s->entity_count, sizeof e) = e;
	if (more(l)) *(struct entity *)append(&s->unsupported, &s->unsupported_count, sizeof e) = e;
}

static void read_links(struct state *s, struct line *l) {
	struct links *x = append(&s->links, &s->links_count, sizeof *x);
	x->kind = (int)integer(l);
	x->id = (unsigned)integer(l);
	while (more(l) && x->count < MAX_LINKS) x->state[x->count++] = (int)integer(l);
}

static void read_mig(struct state *s, struct line *l) {
	dcgmMigHierarchyInfo_v2 *m = append(&s->hierarchy, &s->hierarchy_count, sizeof *m);
	m->entity.entityGroupId = (dcgm_field_entity_group_t)integer(l);
	m->entity.entityId = (dcgm_field_eid_t)integer(l);
	m->parent.entityGroupId = (dcgm_field_entity_group_t)integer(l);
	m->parent.entityId = (dcgm_field_eid_t)integer(l);
	word_to(l, m->info.gpuUuid, sizeof m->info.gpuUuid);
	m->info.nvmlGpuIndex = (unsigned)integer(l);
	m->info.nvmlInstanceId = (unsigned)integer(l);
	m->info.nvmlComputeInstanceId = (unsigned)integer(l);
	m->info.nvmlMigProfileId = (unsigned)integer(l);
	m->info.nvmlProfileSlices = (unsigned)integer(l);
}

static void read_cpu(struct state *s, struct line *l) {
	if (s->cpu_count == 8) {
		fail(l, "%s", "too many CPUs");
		return;
	}
	struct cpu *c = &s->cpus[s->cpu_count++];
	c->id = (unsigned)integer(l);
	c->first = (unsigned)integer(l);
	c->last = (unsigned)integer(l);
}

static void read_peer(struct state *s, struct line *l) {
	uint64_t a = integer(l), b = integer(l), status = integer(l);
	if (a > 31 || b > 31) fail(l, "%s", "GPUs are from 0 to 31");
	else s->peers[a][b] = (int)status;
}

static void read_metrics(struct state *s, struct line *l) {
	struct metric_group *m = append(&s->metrics, &s->metric_count, sizeof *m);
	m->gpu = (unsigned)integer(l);
	m->group.majorId = (unsigned short)integer(l);
	m->group.minorId = (unsigned short)integer(l);
	while (more(l) && m->group.numFieldIds < DCGM_PROF_MAX_FIELD_IDS_PER_GROUP_V2)
		m->group.fieldIds[m->group.numFieldIds++] = (unsigned short)integer(l);
}

static void read_incident(struct state *s, struct line *l) {
	struct incident *in = append(&s->incidents, &s->incident_count, sizeof *in);
	in->of = entity(l);
	in->system = (unsigned)integer(l);
	in->health = (int)integer(l);
	in->code = (unsigned)integer(l);
	snprintf(in->message, sizeof in->message, "%s", l->rest);
}

static void read_fault_line(struct state *s, struct line *l) {
	char *name = next_word(l);
	int f = function_of(name);
	struct fault add;
	if (f < 0) fail(l, "no function \"%s\"", name);
	else if (read_fault(l, &add)) s->faults[f] = merge(add, s->faults[f]);
}

static void read_field(struct state *s, struct line *l) {
	int id = field_of(l);
	char *type = next_word(l);
	if (!*type || !strchr("bdist", *type)) fail(l, "no type of fields is \"%s\"", type);
	if (l->problem[0]) return;
	s->types[id] = *type;
	if (more(l)) {
		s->ranges[id].min = number(l);
		s->ranges[id].max = number(l);
	}
}

// A freeze begins at the call that finds it and not when the test requested it: replies
// in between may be newer, and frozen values do not go back.
static void read_freeze(struct state *s, struct line *l) {
	struct entity of = entity(l);
	struct freeze f = {of.kind, of.id, (int64_t)integer(l), now_micros()};
	for (int i = 0; S && i < S->freeze_count; i++) {
		const struct freeze *old = &S->freezes[i];
		if (old->kind == f.kind && old->id == f.id && old->asked == f.asked) f.micros = old->micros;
	}
	*(struct freeze *)append(&s->freezes, &s->freeze_count, sizeof f) = f;
}

static void read_lost(struct state *s, struct line *l) {
	struct entity e = entity(l);
	*(struct entity *)append(&s->lost, &s->lost_count, sizeof e) = e;
}

static void read_xid(struct state *s, struct line *l) {
	struct xid *x = append(&s->xids, &s->xid_count, sizeof *x);
	x->of = entity(l);
	x->micros = (int64_t)integer(l);
	x->code = (int64_t)integer(l);
}

static const struct {
	const char *name;
	void (*read)(struct state *s, struct line *l);
} lines[] = {
	{"value", read_value},   {"engine", read_engine},     {"entity", read_entity},     {"refuse", read_refusal},
	{"links", read_links},   {"mig", read_mig},           {"cpu", read_cpu},           {"peer", read_peer},
	{"metrics", read_metrics}, {"incident", read_incident}, {"fault", read_fault_line}, {"field", read_field},
	{"freeze", read_freeze}, {"lost", read_lost},         {"xid", read_xid},
};

bool read_line(struct line *l) {
	char *name = next_word(l);
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
		if (!strcmp(lines[i].name, name)) {
			lines[i].read(l->s, l);
			return !l->problem[0];
		}
	return fail(l, "no line begins with \"%s\"", name);
}

struct state *new_state(void) {
	struct state *s = calloc(1, sizeof *s);
	if (!s) abort();
	snprintf(s->version, sizeof s->version, "4.6.0");
	snprintf(s->library, sizeof s->library, "4.6.0");
	s->links_version = 5;
	return s;
}

void free_state(struct state *s) {
	free_values(&s->values);
	free_values(&s->refused);
	free(s->entities);
	free(s->unsupported);
	free(s->freezes);
	free(s->lost);
	free(s->xids);
	free(s->links);
	free(s->hierarchy);
	free(s->metrics);
	free(s->incidents);
	free(s);
}
