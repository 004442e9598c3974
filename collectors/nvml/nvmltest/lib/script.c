// The script: lines of words. README.md in the folder above describes them.
#define _GNU_SOURCE
#include "fake.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct block {
	struct block *next;
	max_align_t memory[];
};

void *keep(struct state *s, size_t size) {
	struct block *b = calloc(1, sizeof *b + size);
	if (!b)
		abort(); // a test that is out of memory cannot continue
	b->next = s->blocks;
	s->blocks = b;
	return b->memory;
}

struct state *new_state(void) {
	struct state *s = calloc(1, sizeof *s);
	if (!s)
		abort();
	s->fields = NVML_FI_MAX;
	s->gpm = NVML_GPM_METRIC_MAX;
	return s;
}

void free_state(struct state *s) {
	for (struct block *b = s->blocks, *next; b; b = next) {
		next = b->next;
		free(b);
	}
	for (int g = 0; g < s->gpu_count; g++) {
		struct gpu *gpu = &s->gpus[g];
		void *lists[] = {gpu->loads, gpu->instances, gpu->profiles, gpu->processes};
		for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
			free(lists[i]);
	}
	free(s->gpus);
	free(s->events);
	for (int i = 0; i <= MAX_GPUS; i++)
		free(s->faults[i]);
	free(s);
}

// remainder_of returns the rest of the line.
static char *remainder_of(struct line *l) {
	more(l);
	for (size_t end = strlen(l->rest); end > 0 && isspace((unsigned char)l->rest[end - 1]); end--)
		l->rest[end - 1] = 0;
	return l->rest;
}

// A span is "3", "2-5", or "*" for all below limit.
struct span {
	int from, to;
};

static bool parse_span(struct line *r, const char *text, int limit, struct span *out) {
	char *end;
	if (strcmp(text, "*") == 0) {
		*out = (struct span){0, limit - 1};
		return true;
	}
	out->from = out->to = (int)strtol(text, &end, 10);
	if (end != text && *end == '-') {
		text = end + 1;
		out->to = (int)strtol(text, &end, 10);
	}
	if (end == text || *end || out->from < 0 || out->to < out->from || out->to >= limit)
		return fail(r, "\"%s\" selects nothing that there is", text);
	return true;
}

static bool gpus_of(struct line *r, struct span *out) { return parse_span(r, next_word(r), r->s->gpu_count, out); }

static bool cell_of(struct line *r, const char *text, bool is_text, struct cell *out) {
	*out = (struct cell){0};
	if (strcmp(text, "none") == 0)
		return true;
	if (text[0] == '!') {
		out->kind = CODE;
		return code_of(text + 1, &out->code) || fail(r, "\"%s\" is no return code", text);
	}
	bool constant = false;
	double v = 0;
	if (!is_text && !check_expression(text, &constant, &v, r->problem, sizeof r->problem))
		return false;
	if (constant)
		*out = (struct cell){.kind = CONSTANT, .number = v};
	else
		*out = (struct cell){.kind = is_text ? STRING : EXPRESSION, .text = strcpy(keep(r->s, strlen(text) + 1), text)};
	return true;
}

static const struct {
	const char *name;
	int first, count;
	bool text;
} key_table[] = {
#define TEXT(symbol, name, count) {name, K_##symbol, count, true},
#define NUMBER(symbol, name, count) {name, K_##symbol, count, false},
#include "keys.def"
#undef TEXT
#undef NUMBER
};

// gpu 0-3 nvlink.tx[4] = floor(work * 1000)
static bool line_gpu(struct line *r) {
	struct span gpus, elements;
	if (!gpus_of(r, &gpus))
		return false;
	char *name = next_word(r), *index = strchr(name, '[');
	if (index) {
		*index++ = 0;
		index[strcspn(index, "]")] = 0;
	}
	for (size_t k = 0; k < sizeof key_table / sizeof *key_table; k++) {
		if (strcmp(key_table[k].name, name) != 0)
			continue;
		if (!parse_span(r, index ? index : "*", key_table[k].count, &elements))
			return false;
		const char *text = remainder_of(r);
		if (!*text)
			return fail(r, "key \"%s\" has no value", name);
		struct cell cell;
		if (!cell_of(r, text, key_table[k].text, &cell))
			return false;
		for (int g = gpus.from; g <= gpus.to; g++)
			for (int e = cell.index = elements.from; e <= elements.to; cell.index = ++e)
				r->s->gpus[g].cells[key_table[k].first + e] = cell;
		return true;
	}
	return fail(r, "no key \"%s\"", name);
}

static bool line_node(struct line *r) {
	char *key = next_word(r), *text;
	struct state *s = r->s;
	if (strcmp(key, "cuda") == 0)
		s->cuda = (int)number(r);
	else if (strcmp(key, "fields") == 0)
		s->fields = (int)number(r);
	else if (strcmp(key, "gpm") == 0)
		s->gpm = (int)number(r);
	else {
		text = remainder_of(r);
		if (strcmp(key, "driver") == 0)
			snprintf(s->driver, sizeof s->driver, "%s", text);
		else if (strcmp(key, "nvml") == 0)
			snprintf(s->nvml, sizeof s->nvml, "%s", text);
		else if (strcmp(key, "dev") == 0)
			snprintf(s->dev, sizeof s->dev, "%s", text);
		else
			return fail(r, "node has no \"%s\"", key);
	}
	return !r->problem[0];
}

static bool line_gpus(struct line *r) {
	struct state *s = r->s;
	if (s->gpus)
		return fail(r, "%s", "gpus is said twice");
	int n = (int)number(r);
	if (r->problem[0] || n < 0 || n > MAX_GPUS)
		return fail(r, "%s", "gpus must be from 0 to 32");
	s->gpu_count = n;
	s->gpus = calloc((size_t)n + 1, sizeof *s->gpus);
	if (!s->gpus)
		return fail(r, "%s", "no memory");
	for (int i = 0; i < n; i++)
		s->gpus[i].number = i;
	return true;
}

static bool line_time(struct line *r) {
	char *kind = next_word(r);
	if (strcmp(kind, "frozen") == 0) {
		r->s->frozen = true;
		r->s->at = number(r);
	} else if (strcmp(kind, "epoch") == 0) {
		r->s->frozen = false;
		r->s->epoch = integer(r);
	} else
		return fail(r, "time is frozen or epoch, not \"%s\"", kind);
	return !r->problem[0];
}

// load 0-3 12.5 0.5 0.3 60 0: from second 12.5, 0.5 ± 0.3 with a period of 60 s and phase 0.
// "load 0-3 12.5 0.5" is constant.
static bool line_load(struct line *r) {
	struct span gpus;
	if (!gpus_of(r, &gpus))
		return false;
	struct load l = {.at = number(r), .base = number(r), .period = 1};
	if (more(r)) {
		l.amplitude = number(r);
		l.period = number(r);
		l.phase = number(r);
	}
	if (!(l.period > 0))
		return fail(r, "%s", "the period must be above 0");
	for (int g = gpus.from; g <= gpus.to && !r->problem[0]; g++) {
		struct gpu *gpu = &r->s->gpus[g];
		struct load *add = append(&gpu->loads, &gpu->load_count, sizeof l), *last = add - 1;
		*add = l;
		if (gpu->load_count > 1) {
			if (l.at < last->at)
				return fail(r, "%s", "loads must be in the order of their times");
			add->before = last->before + load_until(last, l.at);
		}
	}
	return !r->problem[0];
}

// Lines of key=value words add elements to a GPU's lists.

// attribute returns a key's value, up to the next space; "" if the line lacks the key.
static const char *attribute(const struct line *l, const char *key, char out[128]) {
	size_t n = strlen(key);
	out[0] = 0;
	for (const char *w = l->rest; *w; w += strcspn(w, " "), w += strspn(w, " "))
		if (strncmp(w, key, n) == 0 && w[n] == '=')
			snprintf(out, 128, "%.*s", (int)strcspn(w + n + 1, " "), w + n + 1);
	return out;
}

static unsigned number_at(struct line *l, const char *key) {
	char text[128];
	return (unsigned)integer_of(l, attribute(l, key, text));
}

static struct profile profile_of(struct line *l) {
	char text[128];
	return (struct profile){
		.number = number_at(l, "number"), .id = number_at(l, "id"), .slices = number_at(l, "slices"), .sms = number_at(l, "sms"),
		.copies = number_at(l, "copies"), .count = number_at(l, "count"), .memory = integer_of(l, attribute(l, "memory", text)),
	};
}

static bool line_profile(struct line *l) {
	struct span gpus;
	if (!gpus_of(l, &gpus))
		return false;
	for (int g = gpus.from; g <= gpus.to; g++)
		*(struct profile *)append(&l->s->gpus[g].profiles, &l->s->gpus[g].profile_count, sizeof(struct profile)) = profile_of(l);
	return !l->problem[0];
}

// gpu_of parses the number of one GPU.
static struct gpu *gpu_of(struct line *l) {
	struct span gpus;
	return gpus_of(l, &gpus) ? &l->s->gpus[gpus.from] : NULL;
}

static bool line_mig(struct line *l) {
	char text[128];
	struct gpu *g = gpu_of(l);
	if (!g)
		return false;
	struct instance *m = append(&g->instances, &g->instance_count, sizeof *m);
	*m = (struct instance){.profile = profile_of(l), .gi = number_at(l, "gi"), .ci = number_at(l, "ci"), .slices = number_at(l, "cislices")};
	m->share = strtod(attribute(l, "share", text), NULL);
	snprintf(m->uuid, sizeof m->uuid, "%s", attribute(l, "uuid", text));
	snprintf(m->profile.name, sizeof m->profile.name, "%.63s", attribute(l, "profile", text));
	return !l->problem[0];
}

static bool line_process(struct line *l) {
	char text[128];
	struct gpu *g = gpu_of(l);
	if (!g)
		return false;
	struct process *p = append(&g->processes, &g->process_count, sizeof *p);
	*p = (struct process){.pid = number_at(l, "pid"), .type = 'C', .gi = ~0u, .ci = ~0u};
	if (*attribute(l, "type", text))
		p->type = text[0];
	if (*attribute(l, "gi", text)) {
		p->gi = number_at(l, "gi");
		p->ci = number_at(l, "ci");
	}
	if (*attribute(l, "memory", text))
		p->memory = strcmp(text, "none") == 0 ? ~0ULL : integer_of(l, text);
	return !*attribute(l, "sm", text) || cell_of(l, text, false, &p->sm);
}

static bool line_absent(struct line *r) {
	struct span gpus;
	if (!gpus_of(r, &gpus))
		return false;
	for (int g = gpus.from; g <= gpus.to; g++)
		r->s->gpus[g].absent = true;
	return true;
}

// fault 3 nvmlDeviceGetPowerUsage code GPU_IS_LOST
static bool line_fault(struct line *r) {
	char *who = next_word(r);
	struct span gpus = {HOST, HOST};
	if (strcmp(who, "node") != 0 && !parse_span(r, who, r->s->gpu_count, &gpus))
		return false;
	char *name = next_word(r);
	int f = function_of(name);
	if (f < 0)
		return fail(r, "no function \"%s\"", name);
	struct fault add;
	if (!read_fault(r, &add))
		return false;
	for (int g = gpus.from; g <= gpus.to; g++) {
		if (!r->s->faults[g] && !(r->s->faults[g] = calloc(FN_EVERY + 1, sizeof add)))
			return fail(r, "%s", "no memory");
		r->s->faults[g][f] = merge(add, r->s->faults[g][f]);
	}
	return true;
}

// event 17 0 8 79 4294967295 4294967295
static bool line_event(struct line *r) {
	struct event *e = append(&r->s->events, &r->s->event_count, sizeof *e);
	e->id = integer(r);
	e->gpu = (int)integer(r);
	e->type = integer(r);
	e->data = integer(r);
	e->gi = (unsigned)integer(r);
	e->ci = (unsigned)integer(r);
	if (e->gpu < 0 || e->gpu >= r->s->gpu_count)
		return fail(r, "%s", "an event needs a GPU that there is");
	return !r->problem[0];
}

static const struct {
	const char *name;
	bool (*read)(struct line *r);
} lines[] = {
	{"gpu", line_gpu},       {"node", line_node},   {"gpus", line_gpus},   {"time", line_time},       {"load", line_load},       {"absent", line_absent},
	{"fault", line_fault},   {"event", line_event}, {"mig", line_mig},     {"process", line_process}, {"profile", line_profile},
};

bool read_line(struct line *r) {
	char *name = next_word(r);
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
		if (strcmp(lines[i].name, name) == 0)
			return lines[i].read(r);
	return fail(r, "no line begins with \"%s\"", name);
}
