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
		void *lists[] = {gpu->loads, gpu->instances, gpu->profiles, gpu->processes, gpu->vgpus};
		for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
			free(lists[i]);
	}
	free(s->gpus);
	free(s->events);
	for (int i = 0; i <= MAX_GPUS; i++)
		free(s->faults[i]);
	free(s);
}

// remainder is what is left of the line.
static char *remainder_of(struct line *l) {
	more(l);
	for (size_t end = strlen(l->rest); end > 0 && isspace((unsigned char)l->rest[end - 1]); end--)
		l->rest[end - 1] = 0;
	return l->rest;
}

// span is "3" or "2-5", or "*" for all below limit.
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
			for (int e = elements.from; e <= elements.to; e++)
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

// load 0-3 12.5 0.5 0.3 60 0: from second 12.5 on, 0.5 ± 0.3 with a period of 60 s and
// no phase. "load 0-3 12.5 0.5" is constant.
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

// A line of key=value words is an element of one of a GPU's lists.
struct attribute {
	const char *key;
	enum { UNSIGNED, LONG, REAL, NAME, CELL } type;
	size_t at, size;
};
#define ATTRIBUTE(key, type, in, member) {key, type, offsetof(struct in, member), sizeof((struct in *)0)->member}

#define PROFILE(in, prefix)                                                                                                    \
	ATTRIBUTE("number", UNSIGNED, in, prefix number), ATTRIBUTE("id", UNSIGNED, in, prefix id), ATTRIBUTE("slices", UNSIGNED, in, prefix slices),          \
		ATTRIBUTE("sms", UNSIGNED, in, prefix sms), ATTRIBUTE("copies", UNSIGNED, in, prefix copies), ATTRIBUTE("count", UNSIGNED, in, prefix count), \
		ATTRIBUTE("memory", LONG, in, prefix memory)

static const struct attribute profile_attributes[] = {ATTRIBUTE("name", NAME, profile, name), PROFILE(profile, ), {0}};
static const struct attribute mig_attributes[] = {
	ATTRIBUTE("gi", UNSIGNED, instance, gi),
	ATTRIBUTE("ci", UNSIGNED, instance, ci),
	ATTRIBUTE("uuid", NAME, instance, uuid),
	ATTRIBUTE("profile", NAME, instance, profile.name),
	ATTRIBUTE("cislices", UNSIGNED, instance, slices),
	ATTRIBUTE("share", REAL, instance, share),
	PROFILE(instance, profile.),
	{0},
};
static const struct attribute process_attributes[] = {
	ATTRIBUTE("pid", UNSIGNED, process, pid),
	ATTRIBUTE("gi", UNSIGNED, process, gi),
	ATTRIBUTE("ci", UNSIGNED, process, ci),
	ATTRIBUTE("type", NAME, process, type),
	ATTRIBUTE("memory", LONG, process, memory),
	ATTRIBUTE("sm", CELL, process, sm),
	{0},
};
static const struct attribute vgpu_attributes[] = {
	ATTRIBUTE("id", UNSIGNED, vgpu, id),
	ATTRIBUTE("uuid", NAME, vgpu, uuid),
	ATTRIBUTE("typeid", UNSIGNED, vgpu, type_id),
	ATTRIBUTE("licensed", UNSIGNED, vgpu, licensed),
	ATTRIBUTE("memory", LONG, vgpu, memory),
	{0},
};

union element {
	struct profile profile;
	struct instance instance;
	struct process process;
	struct vgpu vgpu;
};

static const struct {
	const char *name;
	const struct attribute *attributes;
	size_t list, count, size; // of struct gpu; of an element
	union element initial;
} elements[] = {
#define ELEMENTS(type, list, counted) offsetof(struct gpu, list), offsetof(struct gpu, counted), sizeof(struct type)
	{"profile", profile_attributes, ELEMENTS(profile, profiles, profile_count), {.vgpu = {0}}},
	{"mig", mig_attributes, ELEMENTS(instance, instances, instance_count), {.vgpu = {0}}},
	{"process", process_attributes, ELEMENTS(process, processes, process_count), {.process = {.type = "C", .gi = ~0u, .ci = ~0u}}},
	{"vgpu", vgpu_attributes, ELEMENTS(vgpu, vgpus, vgpu_count), {.vgpu = {0}}},
};

// read_attribute reads the next word, key=value, into an element.
static bool read_attribute(struct line *r, const struct attribute *a, void *element) {
	char *key = next_word(r), *text = strchr(key, '=');
	if (!text)
		return fail(r, "\"%s\" is not key=value", key);
	*text++ = 0;
	while (a->key && strcmp(a->key, key) != 0)
		a++;
	if (!a->key)
		return fail(r, "there is no \"%s\" here", key);
	void *to = (char *)element + a->at;
	switch (a->type) {
	case UNSIGNED: *(unsigned *)to = (unsigned)integer_of(r, text); break;
	case LONG: *(unsigned long long *)to = strcmp(text, "none") == 0 ? ~0ULL : integer_of(r, text); break;
	case REAL: *(double *)to = strtod(text, NULL); break;
	case NAME: snprintf(to, a->size, "%s", text); break;
	case CELL: cell_of(r, text, false, to); break;
	}
	return !r->problem[0];
}

static bool line_element(struct line *r, size_t which) {
	struct span gpus;
	union element e = elements[which].initial;
	if (!gpus_of(r, &gpus))
		return false;
	while (more(r))
		if (!read_attribute(r, elements[which].attributes, &e))
			return false;
	for (int g = gpus.from; g <= gpus.to; g++) {
		char *gpu = (char *)&r->s->gpus[g];
		memcpy(append(gpu + elements[which].list, (int *)(gpu + elements[which].count), elements[which].size), &e, elements[which].size);
	}
	return true;
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
	{"gpu", line_gpu},       {"node", line_node},   {"gpus", line_gpus},   {"time", line_time}, {"load", line_load},
	{"absent", line_absent}, {"fault", line_fault}, {"event", line_event},
};

bool read_line(struct line *r) {
	char *name = next_word(r);
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
		if (strcmp(lines[i].name, name) == 0)
			return lines[i].read(r);
	for (size_t i = 0; i < sizeof elements / sizeof *elements; i++)
		if (strcmp(elements[i].name, name) == 0)
			return line_element(r, i);
	return fail(r, "no line begins with \"%s\"", name);
}
