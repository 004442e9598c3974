// The part of package simulated that is compiled into each scripted library: the control file,
// the script's parser, and faults. SIMULATED is the library's name, "NVML"; its functions are
// listed in functions.def.
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
	FN_EVERY = FN_COUNT, // in faults, written as "*"
};

// Words of the control file; control.go has the same list. A library's own words follow.
enum {
	WORD_GENERATION, // a change makes the library read its script again
	WORD_ERRORS,     // scripts that it could not read
	WORD_HANGING,    // calls that hang
	WORD_FIRST_OWN,
};

// controlfile.c: the control file. Before the script is first read, and if the file cannot be
// created, memory of this process replaces it.
_Atomic uint64_t *word(unsigned w);
uint64_t generation(void);
void count_call(enum function f);
void set_text(const char *text);    // for Control.Text
void complain(const char *problem); // reports a problem of the script
// find_script returns the script's path, from the file NAME.node next to the library or the
// variable WARPGAUGE_FAKE_…, and maps the control file next to the script. It returns NULL if
// neither names a script. Not safe for concurrent use.
const char *find_script(void);
void pause_us(uint64_t us);
void await_change(uint64_t seen); // waits for a new generation

// lines.c: lines of words. The library parses them into its state.
struct state;
struct line {
	struct state *s;
	char *rest;        // the unread part
	char problem[300]; // why the line is invalid; "" if it is valid
};
// read_state parses the script into a state and returns it with its generation; on an error it
// calls complain and returns NULL. It calls these functions of the library:
struct state *read_state(uint64_t *generation);
struct state *new_state(void);
bool read_line(struct line *l); // false if the line has a problem
void free_state(struct state *s);

bool fail(struct line *l, const char *format, const char *what); // returns false
char *next_word(struct line *l);                                 // splits it off; "" at the end
bool more(struct line *l);                                       // is there another word?
double number(struct line *l);
uint64_t integer(struct line *l); // may be negative
uint64_t integer_of(struct line *l, const char *word);
// append makes room for one more element of a list and returns it, zeroed.
void *append(void *list, int *count, size_t size);

// faults.c: a function's fault.
struct fault {
	bool answers, hangs;
	int code;
	unsigned delay_us;
};
// merge returns a with the settings of b that a lacks.
struct fault merge(struct fault a, struct fault b);
int function_of(const char *name); // -1 if unknown
// read_fault reads "code GPU_IS_LOST", "delay 5000" or "hang".
bool read_fault(struct line *l, struct fault *out);
bool code_of(const char *name, int *out); // defined by the library

#endif
