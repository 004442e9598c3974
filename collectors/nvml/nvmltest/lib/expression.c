// Expressions of the script: numbers, + - * /, parentheses, the variables t, gpu,
// i, load and work, and a few functions. They are compiled to a stack program,
// because benchmarks measure what calls the library.
#include "fake.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum op { PUSH, VAR_T, VAR_GPU, VAR_I, VAR_LOAD, VAR_WORK, ADD, SUB, MUL, DIV, NEG, FLOOR, MOD, LESS };

struct step {
	enum op op;
	double number;
};

enum { MAX_STEPS = 64, MAX_STACK = 32 };

struct expression {
	int count;
	struct step steps[];
};

struct parser {
	const char *at;
	struct step steps[MAX_STEPS];
	int count, depth, deepest;
	bool moving; // uses a variable
	const char *problem;
};

static void emit(struct parser *p, enum op op, double number, int effect) {
	if (p->count == MAX_STEPS) {
		p->problem = "too long";
		return;
	}
	p->steps[p->count++] = (struct step){op, number};
	p->depth += effect;
	if (p->depth > p->deepest)
		p->deepest = p->depth;
	if (p->deepest > MAX_STACK)
		p->problem = "too deep";
}

static void skip(struct parser *p) {
	while (isspace((unsigned char)*p->at))
		p->at++;
}

static bool take(struct parser *p, char c) {
	skip(p);
	if (*p->at != c)
		return false;
	p->at++;
	return true;
}

static void sum(struct parser *p);

static const struct {
	const char *name;
	enum op op;
	int arguments; // 0 for a variable
} names[] = {
	{"t", VAR_T, 0},       {"gpu", VAR_GPU, 0}, {"i", VAR_I, 0},   {"load", VAR_LOAD, 0},
	{"work", VAR_WORK, 0}, {"floor", FLOOR, 1}, {"mod", MOD, 2}, {"less", LESS, 2},
};

static void name(struct parser *p) {
	char word[16];
	size_t n = 0;
	while (isalpha((unsigned char)*p->at) && n < sizeof word - 1)
		word[n++] = *p->at++;
	word[n] = 0;
	for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
		if (strcmp(names[k].name, word) != 0)
			continue;
		if (names[k].arguments == 0) {
			p->moving = true;
			emit(p, names[k].op, 0, 1);
			return;
		}
		if (!take(p, '(')) {
			p->problem = "a function needs (";
			return;
		}
		for (int a = 0; a < names[k].arguments && !p->problem; a++) {
			if (a > 0 && !take(p, ','))
				p->problem = "a function needs another argument";
			sum(p);
		}
		if (!take(p, ')') && !p->problem)
			p->problem = "missing )";
		emit(p, names[k].op, 0, 1 - names[k].arguments);
		return;
	}
	p->problem = "unknown name";
}

static void factor(struct parser *p) {
	skip(p);
	if (p->problem)
		return;
	if (take(p, '(')) {
		sum(p);
		if (!take(p, ')') && !p->problem)
			p->problem = "missing )";
	} else if (take(p, '-')) {
		factor(p);
		emit(p, NEG, 0, 0);
	} else if (isalpha((unsigned char)*p->at)) {
		name(p);
	} else {
		char *end;
		double v = strncmp(p->at, "0x", 2) == 0 ? (double)strtoull(p->at, &end, 16) : strtod(p->at, &end);
		if (end == p->at) {
			p->problem = "a number or name is missing";
			return;
		}
		p->at = end;
		emit(p, PUSH, v, 1);
	}
}

// chain reads operands of the next level with either operator between them.
static void chain(struct parser *p, void (*operand)(struct parser *), char a, enum op op_a, char b, enum op op_b) {
	operand(p);
	while (!p->problem) {
		enum op op = take(p, a) ? op_a : take(p, b) ? op_b : PUSH;
		if (op == PUSH)
			return;
		operand(p);
		emit(p, op, 0, -1);
	}
}

static void product(struct parser *p) { chain(p, factor, '*', MUL, '/', DIV); }
static void sum(struct parser *p) { chain(p, product, '+', ADD, '-', SUB); }

const struct expression *compile_expression(struct state *s, const char *text, bool *constant, double *number, char *error, size_t size) {
	struct parser p = {.at = text};
	sum(&p);
	skip(&p);
	if (!p.problem && *p.at)
		p.problem = "more than an expression";
	if (p.problem) {
		snprintf(error, size, "expression \"%.100s\": %s at \"%.20s\"", text, p.problem, p.at);
		return NULL;
	}
	struct expression *e = keep(s, sizeof *e + (size_t)p.count * sizeof *e->steps);
	e->count = p.count;
	memcpy(e->steps, p.steps, (size_t)p.count * sizeof *e->steps);
	*constant = !p.moving;
	if (*constant)
		*number = evaluate(e, &(struct variables){0});
	return e;
}

double evaluate(const struct expression *e, const struct variables *v) {
	double stack[MAX_STACK + 1];
	int top = 0;
	for (const struct step *s = e->steps; s < e->steps + e->count; s++) {
		switch (s->op) {
		case PUSH: stack[top++] = s->number; break;
		case VAR_T: stack[top++] = v->t; break;
		case VAR_GPU: stack[top++] = v->gpu; break;
		case VAR_I: stack[top++] = v->i; break;
		case VAR_LOAD: stack[top++] = v->load; break;
		case VAR_WORK: stack[top++] = v->work; break;
		case ADD: top--; stack[top - 1] += stack[top]; break;
		case SUB: top--; stack[top - 1] -= stack[top]; break;
		case MUL: top--; stack[top - 1] *= stack[top]; break;
		case DIV: top--; stack[top - 1] /= stack[top]; break;
		case NEG: stack[top - 1] = -stack[top - 1]; break;
		case FLOOR: stack[top - 1] = floor(stack[top - 1]); break;
		case MOD: top--; stack[top - 1] = stack[top - 1] - stack[top] * floor(stack[top - 1] / stack[top]); break;
		case LESS: top--; stack[top - 1] = stack[top - 1] < stack[top]; break;
		}
	}
	return stack[0];
}
