// Parses a script: lines of words.
#define _GNU_SOURCE
#include "simulated.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool fail(struct line *l, const char *format, const char *what) {
	if (!l->problem[0])
		snprintf(l->problem, sizeof l->problem, format, what);
	return false;
}

bool more(struct line *l) {
	while (isspace((unsigned char)*l->rest))
		l->rest++;
	return *l->rest != 0;
}

char *next_word(struct line *l) {
	more(l);
	char *w = l->rest;
	while (*l->rest && !isspace((unsigned char)*l->rest))
		l->rest++;
	if (*l->rest)
		*l->rest++ = 0;
	return w;
}

double number(struct line *l) {
	char *w = next_word(l), *end;
	double v = strtod(w, &end);
	if (end == w || *end)
		fail(l, "\"%s\" is no number", w);
	return v;
}

uint64_t integer_of(struct line *l, const char *word) {
	char *end;
	uint64_t v = strtoull(word, &end, 0); // converts -1 as a cast does
	if (end == word || *end)
		fail(l, "\"%s\" is no integer", word);
	return v;
}

uint64_t integer(struct line *l) { return integer_of(l, next_word(l)); }

void *append(void *list, int *count, size_t size) {
	void **p = list;
	void *bigger = realloc(*p, ((size_t)*count + 1) * size);
	if (!bigger)
		abort(); // a test that is out of memory cannot continue
	*p = bigger;
	return memset((char *)bigger + (size_t)(*count)++ * size, 0, size);
}

static bool read_lines(struct state *s, const char *path, FILE *f) {
	char *text = NULL, shown[200], problem[1000];
	size_t room = 0;
	bool good = true;
	for (int n = 1; good && getline(&text, &room, f) >= 0; n++) {
		text[strcspn(text, "\n")] = 0;
		snprintf(shown, sizeof shown, "%s", text);
		struct line l = {.s = s, .rest = text};
		if (!more(&l) || *l.rest == '#')
			continue;
		good = read_line(&l);
		if (!good) {
			snprintf(problem, sizeof problem, "%.300s:%d: cannot read %s: %s", path, n, shown, l.problem);
			complain(problem);
		}
	}
	free(text);
	return good;
}

struct state *read_state(uint64_t *of) {
	char problem[1000];
	const char *path = find_script();
	*of = path ? generation() : 0;
	FILE *f = path ? fopen(path, "re") : NULL;
	if (!f) {
		if (path) {
			snprintf(problem, sizeof problem, "%.300s: %m", path);
			complain(problem);
		}
		return NULL;
	}
	struct state *s = new_state();
	bool good = read_lines(s, path, f);
	fclose(f);
	if (good)
		return s;
	free_state(s);
	return NULL;
}
