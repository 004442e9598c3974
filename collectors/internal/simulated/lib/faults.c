// Faults of functions.
#include "simulated.h"

#include <string.h>

struct fault merge(struct fault a, struct fault b) {
	if (!a.answers) {
		a.answers = b.answers;
		a.code = b.code;
	}
	if (!a.delay_us)
		a.delay_us = b.delay_us;
	a.hangs |= b.hangs;
	return a;
}

int function_of(const char *name) {
	static const char *const names[] = {
#define FN(name, since) #name,
#define STUB FN
#include "functions.def"
#undef STUB
#undef FN
		"*",
	};
	_Static_assert(sizeof names / sizeof *names == FN_EVERY + 1, "the last one is FN_EVERY");
	for (int i = 0; i <= FN_EVERY; i++)
		if (strcmp(names[i], name) == 0)
			return i;
	return -1;
}

bool read_fault(struct line *l, struct fault *out) {
	char *what = next_word(l);
	*out = (struct fault){0};
	if (strcmp(what, "code") == 0) {
		char *code = next_word(l);
		out->answers = true;
		return code_of(code, &out->code) || fail(l, "\"%s\" is no return code", code);
	}
	if (strcmp(what, "delay") == 0)
		out->delay_us = (unsigned)integer(l);
	else if (strcmp(what, "hang") == 0)
		out->hangs = true;
	else
		return fail(l, "a fault is code, delay or hang, not \"%s\"", what);
	return !l->problem[0];
}
