// Values: the script's cells at the time of the call.
#include "fake.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double turn = 6.283185307179586;

static double shape(const struct load *l, double t) {
	double turns = (t + l->phase) / l->period;
	return l->base + l->amplitude * sin(turn * turns);
}

// area is an antiderivative of shape.
static double area(const struct load *l, double t) {
	double turns = (t + l->phase) / l->period;
	return l->base * t - l->amplitude * l->period * cos(turn * turns) / turn;
}

double load_until(const struct load *l, double t) { return area(l, t) - area(l, l->at); }

static const struct load *piece(const struct call *c) {
	for (int i = c->g->load_count - 1; i >= 0; i--)
		if (c->g->loads[i].at <= c->now)
			return &c->g->loads[i];
	return NULL;
}

double load_at(const struct call *c) {
	const struct load *l = c->g ? piece(c) : NULL;
	double v = l ? shape(l, c->now) : 0;
	return c->m ? v * c->m->share : v;
}

double work_until(const struct call *c) {
	const struct load *l = c->g ? piece(c) : NULL;
	double v = l ? l->before + load_until(l, c->now) : 0;
	return c->m ? v * c->m->share : v;
}

nvmlReturn_t value_of(const struct call *c, const struct cell *cell, double load, double work, double *out) {
	switch (cell->kind) {
	case CODE: return cell->code;
	case CONSTANT: *out = cell->number; return NVML_SUCCESS;
	case EXPRESSION:
		*out = evaluate(cell->text, &(struct variables){c->now, c->g ? c->g->number : 0, cell->index, load, work});
		return NVML_SUCCESS;
	default: return NVML_ERROR_NOT_SUPPORTED;
	}
}

nvmlReturn_t value(const struct call *c, int key, double *out) {
	const struct cell *cell = &c->g->cells[key];
	if (cell->kind != EXPRESSION)
		return value_of(c, cell, 0, 0, out);
	return value_of(c, cell, load_at(c), work_until(c), out);
}

nvmlReturn_t get_uint(const struct call *c, int key, unsigned *out) {
	unsigned long long v;
	nvmlReturn_t r = out ? get_ull(c, key, &v) : NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*out = (unsigned)v;
	return r;
}

nvmlReturn_t get_int(const struct call *c, int key, int *out) {
	double v;
	nvmlReturn_t r = out ? value(c, key, &v) : NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*out = (int)v;
	return r;
}

nvmlReturn_t get_ull(const struct call *c, int key, unsigned long long *out) {
	double v;
	nvmlReturn_t r = out ? value(c, key, &v) : NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*out = v < 0 ? (unsigned long long)(long long)v : v >= 18446744073709551615.0 ? ~0ULL : (unsigned long long)v;
	return r;
}

nvmlReturn_t put_text(const char *text, char *out, unsigned length) {
	if (!out)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (strlen(text) >= length)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(out, text);
	return NVML_SUCCESS;
}

nvmlReturn_t get_text(const struct call *c, int key, char *out, unsigned length) {
	const struct cell *cell = &c->g->cells[key];
	if (cell->kind == STRING)
		return put_text(cell->text, out, length);
	return cell->kind == CODE ? cell->code : NVML_ERROR_NOT_SUPPORTED;
}
