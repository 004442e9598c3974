// Expressions of the script: numbers, + - * /, parentheses, the variables t, gpu,
// i, load and work, and a few functions.
#include "fake.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parser {
	const char *at;
	const struct variables *v;
	bool moving; // uses a variable
	const char *problem;
};

static bool take(struct parser *p, char c) {
	while (isspace((unsigned char)*p->at))
		p->at++;
	if (*p->at != c)
		return false;
	p->at++;
	return true;
}

static void need(struct parser *p, char c, const char *problem) {
	if (!take(p, c) && !p->problem)
		p->problem = problem;
}

static double sum(struct parser *p);

static double name(struct parser *p) {
	const struct {
		const char *name;
		double value;
	} variables[] = {{"t", p->v->t}, {"gpu", p->v->gpu}, {"i", p->v->i}, {"load", p->v->load}, {"work", p->v->work}};
	char word[16];
	size_t n = 0;
	while (isalpha((unsigned char)*p->at) && n < sizeof word - 1)
		word[n++] = *p->at++;
	word[n] = 0;
	for (size_t k = 0; k < sizeof variables / sizeof *variables; k++)
		if (strcmp(variables[k].name, word) == 0) {
			p->moving = true;
			return variables[k].value;
		}
	bool is_floor = strcmp(word, "floor") == 0, is_mod = strcmp(word, "mod") == 0;
	if (!is_floor && !is_mod && strcmp(word, "less") != 0) {
		p->problem = "unknown name";
		return 0;
	}
	need(p, '(', "a function needs (");
	double a = sum(p), b = 1;
	if (!is_floor) {
		need(p, ',', "a function needs another argument");
		b = sum(p);
	}
	need(p, ')', "missing )");
	return is_floor ? floor(a) : is_mod ? a - b * floor(a / b) : a < b;
}

static double factor(struct parser *p) {
	if (p->problem)
		return 0;
	if (take(p, '-'))
		return -factor(p);
	if (take(p, '(')) {
		double v = sum(p);
		need(p, ')', "missing )");
		return v;
	}
	if (isalpha((unsigned char)*p->at))
		return name(p);
	char *end;
	double v = strncmp(p->at, "0x", 2) == 0 ? (double)strtoull(p->at, &end, 16) : strtod(p->at, &end);
	if (end == p->at)
		p->problem = "a number or name is missing";
	p->at = end;
	return v;
}

static double product(struct parser *p) {
	double v = factor(p);
	while (!p->problem) {
		if (take(p, '*'))
			v *= factor(p);
		else if (take(p, '/'))
			v /= factor(p);
		else
			break;
	}
	return v;
}

static double sum(struct parser *p) {
	double v = product(p);
	while (!p->problem) {
		if (take(p, '+'))
			v += product(p);
		else if (take(p, '-'))
			v -= product(p);
		else
			break;
	}
	return v;
}

bool check_expression(const char *text, bool *constant, double *number, char *error, size_t size) {
	struct parser p = {.at = text, .v = &(struct variables){0}};
	*number = sum(&p);
	*constant = !p.moving;
	while (isspace((unsigned char)*p.at))
		p.at++;
	if (!p.problem && *p.at)
		p.problem = "more than an expression";
	if (p.problem)
		snprintf(error, size, "expression \"%.100s\": %s at \"%.20s\"", text, p.problem, p.at);
	return !p.problem;
}

double evaluate(const char *text, const struct variables *v) { return sum(&(struct parser){.at = text, .v = v}); }
