// What a scripted library has from package simulated: the control file, the reading
// of its script, and faults. SIMULATED is its name, "NVML"; its functions are those
// of functions.def.
#ifndef SIMULATED_H
#define SIMULATED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum function {
#define FN(name, since) FN_##name,
#define STUB FN
#include "functions.def"
#undef STUB
#undef FN
	FN_COUNT,
	FN_EVERY = FN_COUNT, // in faults, by the name "*"
};

// Words of the control file; control.go has the same list. A library's own follow.
enum {
	WORD_GENERATION, // a change makes the library read its script again
	WORD_ERRORS,     // scripts that it could not read
	WORD_HANGING,    // calls that hang
	WORD_FIRST_OWN,
};

// controlfile.c: the control file. Before the script is read for the first time, and
// where the file cannot be made, memory of this process stands for it.
_Atomic uint64_t *word(unsigned w);
uint64_t generation(void);
void count_call(enum function f);
void set_text(const char *text);    // for Control.Text
void complain(const char *problem); // of the script
// find_script returns the script's path, of the file NAME.node next to the library or
// of the variable WARPGAUGE_FAKE_…, and maps the control file next to it; NULL where
// neither names one. One thread at a time.
const char *find_script(void);
void pause_us(uint64_t us);
void await_change(uint64_t seen); // of the generation

// lines.c: lines of words. The library has a state that it makes of them.
struct state;
struct line {
	struct state *s;
	char *rest;        // what is not read yet
	char problem[300]; // why it cannot be read; "" if it can
};
// read_state makes a state of the script and returns it with the generation that it
// is of, or complains and returns NULL. It calls what the library defines:
struct state *read_state(uint64_t *generation);
struct state *new_state(void);
bool read_line(struct line *l); // false if the line has a problem
void free_state(struct state *s);

bool fail(struct line *l, const char *format, const char *what); // returns false
char *next_word(struct line *l);                                 // cuts it off; "" at the end
bool more(struct line *l);                                       // is there another word?
double number(struct line *l);
uint64_t integer(struct line *l); // of either sign
uint64_t integer_of(struct line *l, const char *word);
// append makes room for one more element of a list and returns it, zeroed.
void *append(void *list, int *count, size_t size);

// faults.c: what is wrong with a function.
struct fault {
	bool answers, hangs;
	int code;
	unsigned delay_us;
};
// merge returns a with what b says and a does not.
struct fault merge(struct fault a, struct fault b);
int function_of(const char *name); // -1: there is none
// read_fault reads "code GPU_IS_LOST", "delay 5000" or "hang".
bool read_fault(struct line *l, struct fault *out);
bool code_of(const char *name, int *out); // the library defines which there are

#endif
