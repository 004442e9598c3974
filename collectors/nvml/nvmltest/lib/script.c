// The script: lines of words. README.md in the folder above describes them.
#define _GNU_SOURCE
#include "fake.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double load_until(const struct load *l, double t);

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
	free(s->gpus);
	free(s->events);
	free(s->peers);
	for (int i = 0; i <= MAX_GPUS; i++)
		free(s->faults[i]);
	free(s);
}

static char *keep_text(struct state *s, const char *text) { return strcpy(keep(s, strlen(text) + 1), text); }

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

// expand replaces {gpu} and {gpux} (two hexadecimal digits) in a text.
static void expand(const char *text, int gpu, char *out, size_t size) {
	size_t n = 0;
	while (*text && n + 12 < size) {
		if (strncmp(text, "{gpu}", 5) == 0) {
			n += (size_t)sprintf(out + n, "%d", gpu);
			text += 5;
		} else if (strncmp(text, "{gpux}", 6) == 0) {
			n += (size_t)sprintf(out + n, "%02x", (unsigned)gpu);
			text += 6;
		} else
			out[n++] = *text++;
	}
	out[n] = 0;
}

static bool cell_of(struct line *r, const char *text, bool is_text, int gpu, struct cell *out) {
	*out = (struct cell){0};
	if (strcmp(text, "none") == 0)
		return true;
	if (text[0] == '!') {
		out->kind = CODE;
		return code_of(text + 1, &out->code) || fail(r, "\"%s\" is no return code", text);
	}
	if (is_text) {
		char buffer[512];
		expand(text, gpu, buffer, sizeof buffer);
		out->kind = STRING;
		out->text = keep_text(r->s, buffer);
		return true;
	}
	bool constant;
	double v = 0;
	const struct expression *e = compile_expression(r->s, text, &constant, &v, r->problem, sizeof r->problem);
	if (!e)
		return false;
	if (constant) {
		out->kind = CONSTANT;
		out->number = v;
	} else {
		out->kind = EXPRESSION;
		out->expression = e;
	}
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
		for (int g = gpus.from; g <= gpus.to; g++) {
			struct cell cell;
			if (!cell_of(r, text, key_table[k].text, g, &cell))
				return false;
			for (int e = elements.from; e <= elements.to; e++)
				r->s->gpus[g].cells[key_table[k].first + e] = cell;
		}
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
		else if (strcmp(key, "branch") == 0)
			snprintf(s->branch, sizeof s->branch, "%s", text);
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

// load 0-3 12.5 sine 0.5 0.3 60 0
static bool line_load(struct line *r) {
	struct span gpus;
	if (!gpus_of(r, &gpus))
		return false;
	struct load l = {.at = number(r)};
	char *kind = next_word(r);
	l.a = number(r);
	if (strcmp(kind, "steady") == 0)
		l.kind = STEADY;
	else {
		l.b = number(r);
		l.c = number(r);
		l.d = number(r);
		if (strcmp(kind, "sine") == 0)
			l.kind = SINE;
		else if (strcmp(kind, "square") == 0)
			l.kind = SQUARE;
		else
			return fail(r, "no load \"%s\"", kind);
		if (!(l.c > 0))
			return fail(r, "%s", "the period must be above 0");
	}
	if (r->problem[0])
		return false;
	for (int g = gpus.from; g <= gpus.to; g++) {
		struct gpu *gpu = &r->s->gpus[g];
		struct load *list = keep(r->s, ((size_t)gpu->load_count + 1) * sizeof l);
		if (gpu->load_count > 0) {
			memcpy(list, gpu->loads, (size_t)gpu->load_count * sizeof l);
			const struct load *last = &list[gpu->load_count - 1];
			if (l.at < last->at)
				return fail(r, "%s", "loads must be in the order of their times");
			l.before = last->before + load_until(last, l.at);
		}
		list[gpu->load_count++] = l;
		gpu->loads = list;
	}
	return true;
}

// attribute cuts "key=value" off the line.
static bool attribute(struct line *r, char **key, char **text) {
	*key = next_word(r);
	*text = strchr(*key, '=');
	if (!**key)
		return false;
	if (!*text)
		return fail(r, "\"%s\" is not key=value", *key);
	*(*text)++ = 0;
	return true;
}

#define IS(name) (strcmp(key, name) == 0)
#define COPY(to) snprintf(to, sizeof(to), "%s", text)

static bool profile_attribute(struct profile *p, const char *key, const char *text) {
	unsigned long long v = strtoull(text, NULL, 0);
	if (IS("number")) p->number = (unsigned)v;
	else if (IS("id")) p->id = (unsigned)v;
	else if (IS("slices")) p->slices = (unsigned)v;
	else if (IS("sms")) p->sms = (unsigned)v;
	else if (IS("copies")) p->copies = (unsigned)v;
	else if (IS("count")) p->count = (unsigned)v;
	else if (IS("memory")) p->memory = v;
	else return false;
	return true;
}

static bool line_profile(struct line *r) {
	struct span gpus;
	struct profile p = {0};
	char *key, *text;
	if (!gpus_of(r, &gpus))
		return false;
	while (attribute(r, &key, &text)) {
		if (IS("name")) COPY(p.name);
		else if (!profile_attribute(&p, key, text))
			return fail(r, "a profile has no \"%s\"", key);
	}
	for (int g = gpus.from; g <= gpus.to && !r->problem[0]; g++) {
		struct gpu *gpu = &r->s->gpus[g];
		if (gpu->profile_count == MAX_PROFILES)
			return fail(r, "%s", "too many profiles");
		gpu->profiles[gpu->profile_count++] = p;
	}
	return !r->problem[0];
}

static bool line_mig(struct line *r) {
	struct span gpus;
	struct instance m = {.share = 1};
	char *key, *text;
	if (!gpus_of(r, &gpus))
		return false;
	cell_of(r, "load * 2147483648", false, 0, &m.used);
	while (attribute(r, &key, &text)) {
		if (IS("gi")) m.gi = atoi(text) % 16;
		else if (IS("ci")) m.ci = atoi(text) % 16;
		else if (IS("uuid")) COPY(m.uuid);
		else if (IS("profile")) COPY(m.profile.name);
		else if (IS("cislices")) m.slices = (unsigned)atoi(text);
		else if (IS("share")) m.share = strtod(text, NULL);
		else if (IS("used")) cell_of(r, text, false, 0, &m.used);
		else if (!profile_attribute(&m.profile, key, text))
			return fail(r, "an instance has no \"%s\"", key);
	}
	struct gpu *gpu = &r->s->gpus[gpus.from];
	if (gpu->instance_count == MAX_INSTANCES)
		return fail(r, "%s", "too many instances");
	gpu->instances[gpu->instance_count++] = m;
	return !r->problem[0];
}

static bool line_process(struct line *r) {
	struct span gpus;
	struct process p = {.type = 'C', .gi = ~0u, .ci = ~0u};
	char *key, *text;
	if (!gpus_of(r, &gpus))
		return false;
	while (attribute(r, &key, &text)) {
		if (IS("pid")) p.pid = (unsigned)strtoul(text, NULL, 0);
		else if (IS("gi")) p.gi = (unsigned)strtoul(text, NULL, 0);
		else if (IS("ci")) p.ci = (unsigned)strtoul(text, NULL, 0);
		else if (IS("type")) p.type = text[0];
		else if (IS("name")) COPY(p.name);
		else if (IS("memory")) p.memory = strcmp(text, "none") == 0 ? ~0ULL : strtoull(text, NULL, 0);
		else if (IS("sm")) cell_of(r, text, false, 0, &p.sm);
		else if (IS("mem")) cell_of(r, text, false, 0, &p.mem);
		else if (IS("enc")) cell_of(r, text, false, 0, &p.enc);
		else if (IS("dec")) cell_of(r, text, false, 0, &p.dec);
		else return fail(r, "a process has no \"%s\"", key);
	}
	for (int g = gpus.from; g <= gpus.to && !r->problem[0]; g++) {
		struct gpu *gpu = &r->s->gpus[g];
		if (gpu->process_count == MAX_PROCESSES)
			return fail(r, "%s", "too many processes");
		gpu->processes[gpu->process_count++] = p;
	}
	return !r->problem[0];
}

// busy 0 pid=4242 at=12.5 sm=40
static bool line_busy(struct line *r) {
	struct span gpus;
	struct busy_sample b = {0};
	char *key, *text;
	if (!gpus_of(r, &gpus))
		return false;
	while (attribute(r, &key, &text)) {
		if (IS("pid")) b.pid = (unsigned)strtoul(text, NULL, 0);
		else if (IS("at")) b.at = strtod(text, NULL);
		else if (IS("stamp")) b.stamp = strtoull(text, NULL, 0);
		else if (IS("sm")) b.sm = (unsigned)strtoul(text, NULL, 0);
		else return fail(r, "a sample of a process has no \"%s\"", key);
	}
	if (b.stamp == 0)
		b.stamp = (unsigned long long)(b.at * 1e6);
	for (int g = gpus.from; g <= gpus.to && !r->problem[0]; g++) {
		struct gpu *gpu = &r->s->gpus[g];
		if (gpu->sample_count == MAX_SCRIPTED)
			return fail(r, "%s", "too many samples of processes");
		gpu->samples[gpu->sample_count++] = b;
	}
	return !r->problem[0];
}

static bool line_vgpu(struct line *r) {
	struct span gpus;
	struct vgpu v = {.licensed = 1, .state = NVML_GRID_LICENSE_STATE_LICENSED};
	char *key, *text;
	if (!gpus_of(r, &gpus))
		return false;
	while (attribute(r, &key, &text)) {
		if (IS("id")) v.id = (unsigned)strtoul(text, NULL, 0);
		else if (IS("uuid")) COPY(v.uuid);
		else if (IS("vm")) COPY(v.vm);
		else if (IS("type")) COPY(v.type);
		else if (IS("typeid")) v.type_id = (unsigned)strtoul(text, NULL, 0);
		else if (IS("licensed")) v.licensed = (unsigned)atoi(text);
		else if (IS("state")) v.state = (unsigned)atoi(text);
		else if (IS("memory")) v.memory = strtoull(text, NULL, 0);
		else return fail(r, "a vGPU has no \"%s\"", key);
	}
	struct gpu *gpu = &r->s->gpus[gpus.from];
	if (gpu->vgpu_count == MAX_VGPUS)
		return fail(r, "%s", "too many vGPUs");
	gpu->vgpus[gpu->vgpu_count++] = v;
	return !r->problem[0];
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

// peer 0 3 2 5
static bool line_peer(struct line *r) {
	struct peer *p = append(&r->s->peers, &r->s->peer_count, sizeof *p);
	p->from = (int)integer(r);
	p->to = (int)integer(r);
	p->index = (int)integer(r);
	p->status = (int)integer(r);
	return !r->problem[0];
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
	{"gpu", line_gpu},         {"node", line_node},       {"gpus", line_gpus},   {"time", line_time},
	{"load", line_load},       {"profile", line_profile}, {"mig", line_mig},     {"process", line_process},
	{"vgpu", line_vgpu},       {"absent", line_absent},   {"fault", line_fault}, {"event", line_event},
	{"peer", line_peer},       {"busy", line_busy},
};

bool read_line(struct line *r) {
	char *name = next_word(r);
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
		if (strcmp(lines[i].name, name) == 0)
			return lines[i].read(r);
	return fail(r, "no line begins with \"%s\"", name);
}
