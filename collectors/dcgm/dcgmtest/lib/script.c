// Reads the script: lines of words. README.md says what they mean.
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const functions[] = {
#define FN(name, since) #name,
#include "functions.def"
#undef FN
};

enum function function_of(const char *name) {
	if (!strcmp(name, "*")) return FN_EVERY;
	for (int i = 0; i < FN_COUNT; i++)
		if (!strcmp(name, functions[i])) return (enum function)i;
	return (enum function)(FN_COUNT + 1);
}

// One line, taken apart word by word.
struct line {
	char *rest;
	bool bad;
};

static char *next_word(struct line *l) {
	while (*l->rest == ' ') l->rest++;
	char *w = l->rest;
	while (*l->rest && *l->rest != ' ') l->rest++;
	if (*l->rest) *l->rest++ = 0;
	if (!*w) l->bad = true;
	return w;
}

static bool more(struct line *l) {
	while (*l->rest == ' ') l->rest++;
	return *l->rest != 0;
}

static int64_t integer(struct line *l) {
	char *end, *w = next_word(l);
	if (!strcmp(w, "*")) return ANY;
	long long n = strtoll(w, &end, 0);
	if (*end) l->bad = true;
	return n;
}

static double number(struct line *l) {
	char *end, *w = next_word(l);
	double n = strtod(w, &end);
	if (*end) l->bad = true;
	return n;
}

// append makes room for one more element and returns it, zeroed.
static void *append(void *list, int *count, size_t size) {
	void **p = list;
	void *bigger = realloc(*p, (size_t)(*count + 1) * size);
	if (!bigger) abort();
	*p = bigger;
	void *last = (char *)bigger + (size_t)*count * size;
	memset(last, 0, size);
	++*count;
	return last;
}

static void read_engine(struct state *s, struct line *l) {
	char *key = next_word(l);
	if (!strcmp(key, "version")) snprintf(s->version, sizeof s->version, "%s", next_word(l));
	else if (!strcmp(key, "library")) snprintf(s->library, sizeof s->library, "%s", next_word(l));
	else if (!strcmp(key, "down")) s->down = (int)integer(l);
	else if (!strcmp(key, "silent")) s->silent = integer(l) != 0;
	else if (!strcmp(key, "embedding")) s->no_embedding = (int)integer(l);
	else if (!strcmp(key, "profiling")) s->no_profiling = (int)integer(l);
	else if (!strcmp(key, "unlisted")) {
		int64_t kind = integer(l);
		if (kind < 0 || kind >= DCGM_FE_COUNT) l->bad = true;
		else s->unlisted[kind] = (int)integer(l);
	} else if (!strcmp(key, "links")) s->links_version = (int)integer(l);
	else if (!strcmp(key, "order")) s->order = (int)integer(l);
	else if (!strcmp(key, "groups")) s->other_groups = (int)integer(l);
	else if (!strcmp(key, "epoch")) s->epoch = integer(l);
	else if (!strcmp(key, "first")) s->first = integer(l);
	else l->bad = true;
}

static void read_value(struct state *s, struct line *l) {
	int kind = (int)integer(l);
	int64_t id = integer(l);
	int field = (int)integer(l);
	if (field <= 0 || field > 65535) l->bad = true;
	if (l->bad) return;
	struct value *v = put_value(&s->values, kind, id, field);
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
		l->bad = true;
	}
}

static void read_refusal(struct state *s, struct line *l) {
	int kind = (int)integer(l);
	int64_t id = integer(l);
	int field = (int)integer(l), code = (int)integer(l);
	if (field <= 0 || l->bad) l->bad = true;
	else put_value(&s->refused, kind, id, field)->code = code;
}

static void read_entity(struct state *s, struct line *l) {
	struct entity e = {(int)integer(l), 0};
	e.id = integer(l);
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
	snprintf(m->info.gpuUuid, sizeof m->info.gpuUuid, "%s", next_word(l));
	m->info.nvmlGpuIndex = (unsigned)integer(l);
	m->info.nvmlInstanceId = (unsigned)integer(l);
	m->info.nvmlComputeInstanceId = (unsigned)integer(l);
	m->info.nvmlMigProfileId = (unsigned)integer(l);
	m->info.nvmlProfileSlices = (unsigned)integer(l);
}

static void read_cpu(struct state *s, struct line *l) {
	if (s->cpu_count == 8) {
		l->bad = true;
		return;
	}
	struct cpu *c = &s->cpus[s->cpu_count++];
	c->id = (unsigned)integer(l);
	c->first = (unsigned)integer(l);
	c->last = (unsigned)integer(l);
}

static void read_peer(struct state *s, struct line *l) {
	int64_t a = integer(l), b = integer(l), status = integer(l);
	if (a < 0 || a > 31 || b < 0 || b > 31) l->bad = true;
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
	in->of.kind = (int)integer(l);
	in->of.id = integer(l);
	in->system = (unsigned)integer(l);
	in->health = (int)integer(l);
	in->code = (unsigned)integer(l);
	snprintf(in->message, sizeof in->message, "%s", l->rest);
}

static void read_fault(struct state *s, struct line *l) {
	enum function f = function_of(next_word(l));
	if (f > FN_EVERY) {
		l->bad = true;
		return;
	}
	char *what = next_word(l);
	if (!strcmp(what, "code")) {
		s->faults[f].answers = true;
		s->faults[f].code = (int)integer(l);
	} else if (!strcmp(what, "delay")) {
		s->faults[f].delay_us = (unsigned)integer(l);
	} else if (!strcmp(what, "hang")) {
		s->faults[f].hangs = true;
	} else {
		l->bad = true;
	}
}

static void read_line(struct state *s, struct line *l) {
	char *word = next_word(l);
	if (!strcmp(word, "value")) read_value(s, l);
	else if (!strcmp(word, "engine")) read_engine(s, l);
	else if (!strcmp(word, "entity")) read_entity(s, l);
	else if (!strcmp(word, "refuse")) read_refusal(s, l);
	else if (!strcmp(word, "links")) read_links(s, l);
	else if (!strcmp(word, "mig")) read_mig(s, l);
	else if (!strcmp(word, "cpu")) read_cpu(s, l);
	else if (!strcmp(word, "peer")) read_peer(s, l);
	else if (!strcmp(word, "metrics")) read_metrics(s, l);
	else if (!strcmp(word, "incident")) read_incident(s, l);
	else if (!strcmp(word, "fault")) read_fault(s, l);
	else if (!strcmp(word, "field")) {
		int64_t id = integer(l);
		char *type = next_word(l);
		if (id <= 0 || id > 65535 || !strchr("bdist", *type)) l->bad = true;
		else s->types[id] = *type;
		if (!l->bad && more(l)) {
			s->ranges[id].min = number(l);
			s->ranges[id].max = number(l);
		}
	} else if (!strcmp(word, "freeze")) {
		struct freeze *f = append(&s->freezes, &s->freeze_count, sizeof *f);
		f->kind = (int)integer(l);
		f->id = integer(l);
		f->micros = integer(l);
	} else if (!strcmp(word, "lost")) {
		struct entity *e = append(&s->lost, &s->lost_count, sizeof *e);
		e->kind = (int)integer(l);
		e->id = integer(l);
	} else if (!strcmp(word, "xid")) {
		struct xid *x = append(&s->xids, &s->xid_count, sizeof *x);
		x->gpu = (int)integer(l);
		x->micros = integer(l);
		x->code = integer(l);
	} else {
		l->bad = true;
	}
}

struct state *read_script(const char *path, char *error, size_t size) {
	FILE *f = fopen(path, "re");
	if (!f) {
		snprintf(error, size, "cannot open %s", path);
		return NULL;
	}
	struct state *s = calloc(1, sizeof *s);
	if (!s) abort();
	snprintf(s->version, sizeof s->version, "4.6.0");
	snprintf(s->library, sizeof s->library, "4.6.0");
	s->links_version = 5;
	char *text = NULL;
	size_t room = 0;
	bool good = true;
	for (int n = 1; good && getline(&text, &room, f) >= 0; n++) {
		text[strcspn(text, "\n")] = 0;
		if (!*text || *text == '#') continue;
		char shown[200];
		snprintf(shown, sizeof shown, "%s", text);
		struct line l = {text, false};
		read_line(s, &l);
		if (l.bad) {
			snprintf(error, size, "%.200s:%d: cannot read %s", path, n, shown);
			good = false;
		}
	}
	free(text);
	fclose(f);
	if (good) return s;
	free_state(s);
	return NULL;
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
