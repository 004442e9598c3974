// The control file and the script's path.
#define _GNU_SOURCE
#include "simulated.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define VARIABLE "WARPGAUGE_FAKE_" SIMULATED

enum {
	MESSAGE_OFFSET = 1024,
	TEXT_OFFSET = 2048,
	CALLS_OFFSET = 4096,
	MAX_FUNCTIONS = 1024,
	SIZE = CALLS_OFFSET + 8 * MAX_FUNCTIONS,
};
_Static_assert((int)FN_COUNT <= (int)MAX_FUNCTIONS, "more functions than the control file has counters");

static char script[4096];

// The mapping is created once and stays.
static _Atomic uint64_t private_words[SIZE / 8];
static _Atomic(_Atomic uint64_t *) words = private_words;

_Atomic uint64_t *word(unsigned w) { return atomic_load_explicit(&words, memory_order_acquire) + w; }

uint64_t generation(void) { return atomic_load(word(WORD_GENERATION)); }

void count_call(enum function f) { atomic_fetch_add_explicit(word(CALLS_OFFSET / 8 + f), 1, memory_order_relaxed); }

static void put(size_t offset, size_t end, const char *text) { snprintf((char *)word(0) + offset, end - offset, "%s", text); }

void set_text(const char *text) { put(TEXT_OFFSET, CALLS_OFFSET, text); }

void complain(const char *problem) {
	fprintf(stderr, "simulated " SIMULATED ": %s\n", problem);
	put(MESSAGE_OFFSET, TEXT_OFFSET, problem);
	atomic_fetch_add(word(WORD_ERRORS), 1);
}

static bool named_beside(const char *library) {
	char path[sizeof script + 8];
	snprintf(path, sizeof path, "%s.node", library);
	FILE *f = fopen(path, "re");
	if (!f)
		return false;
	if (!fgets(script, sizeof script, f))
		script[0] = 0;
	fclose(f);
	script[strcspn(script, "\n")] = 0;
	return script[0] != 0;
}

static bool named(void) {
	Dl_info info;
	char real[4096];
	if (script[0])
		return true;
	if (dladdr((void *)find_script, &info) && info.dli_fname &&
	    (named_beside(info.dli_fname) || (realpath(info.dli_fname, real) && named_beside(real))))
		return true;
	const char *variable = getenv(VARIABLE);
	snprintf(script, sizeof script, "%s", variable ? variable : "");
	return script[0] != 0;
}

static void map(void) {
	char path[sizeof script + 8];
	if (atomic_load(&words) != private_words)
		return;
	snprintf(path, sizeof path, "%s.control", script);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	if (lseek(fd, 0, SEEK_END) >= SIZE || ftruncate(fd, SIZE) == 0) {
		void *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (p != MAP_FAILED)
			atomic_store_explicit(&words, p, memory_order_release);
	}
	close(fd);
}

const char *find_script(void) {
	if (!named()) {
		complain("neither LIBRARY.node nor the variable " VARIABLE " names a script");
		return NULL;
	}
	map();
	return script;
}

void pause_us(uint64_t us) { nanosleep(&(struct timespec){(time_t)(us / 1000000), (long)(us % 1000000) * 1000}, NULL); }

void await_change(uint64_t seen) {
	while (generation() == seen)
		pause_us(500);
}
