// The control file and the script that is in force.
#define _GNU_SOURCE
#include "fake.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE_OFFSET = 2048, CALLS_OFFSET = 4096, CONTROL_SIZE = CALLS_OFFSET + 8 * 1024 };
_Static_assert(FN_COUNT <= 1024, "more functions than the control file has counters");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // over what follows
static char script_path[4096];
static struct state *current;

// The mapping is made once and stays. Until there is one, and where the file
// cannot be made, this memory stands for it.
static _Atomic uint64_t private_words[CONTROL_SIZE / 8];
static _Atomic(_Atomic uint64_t *) words = private_words;

_Atomic uint64_t *word(enum word w) { return atomic_load_explicit(&words, memory_order_acquire) + w; }

static _Atomic uint64_t *calls(enum function f) {
	return atomic_load_explicit(&words, memory_order_acquire) + CALLS_OFFSET / 8 + f;
}

void count_call(enum function f) { atomic_fetch_add_explicit(calls(f), 1, memory_order_relaxed); }

uint64_t generation(void) { return atomic_load(word(WORD_GENERATION)); }

uint64_t monotonic(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void pause_ms(unsigned ms) { nanosleep(&(struct timespec){ms / 1000, (long)(ms % 1000) * 1000000}, NULL); }

double simulated_time(const struct state *s) {
	if (s->frozen)
		return s->at;
	uint64_t epoch = s->epoch ? s->epoch : atomic_load(word(WORD_EPOCH));
	return ((double)monotonic() - (double)epoch) / 1e9;
}

// neighbour reads the script's path from the file that lies beside the library.
static bool neighbour(const char *library) {
	char path[4096 + 8];
	snprintf(path, sizeof path, "%s.node", library);
	FILE *f = fopen(path, "re");
	if (!f)
		return false;
	bool ok = fgets(script_path, sizeof script_path, f) != NULL;
	fclose(f);
	script_path[strcspn(script_path, "\n")] = 0;
	return ok && script_path[0];
}

static bool find_script(void) {
	Dl_info info;
	char real[4096];
	if (script_path[0])
		return true;
	if (dladdr((void *)find_script, &info) && info.dli_fname) {
		if (neighbour(info.dli_fname))
			return true;
		if (realpath(info.dli_fname, real) && neighbour(real))
			return true;
	}
	const char *e = getenv("WARPGAUGE_FAKE_NVML");
	if (e)
		snprintf(script_path, sizeof script_path, "%s", e);
	return script_path[0] != 0;
}

static void map_control(void) {
	char path[sizeof script_path + 8];
	struct stat st;
	if (atomic_load(&words) != private_words)
		return;
	snprintf(path, sizeof path, "%s.control", script_path);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	if (fstat(fd, &st) == 0 && (st.st_size >= CONTROL_SIZE || ftruncate(fd, CONTROL_SIZE) == 0)) {
		void *p = mmap(NULL, CONTROL_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (p != MAP_FAILED)
			atomic_store_explicit(&words, p, memory_order_release);
	}
	close(fd);
	uint64_t unset = 0;
	atomic_compare_exchange_strong(word(WORD_EPOCH), &unset, monotonic());
}

static void complain(const char *text) {
	fprintf(stderr, "simulated NVML: %s\n", text);
	char *message = (char *)word(WORD_MAGIC) + MESSAGE_OFFSET;
	snprintf(message, CALLS_OFFSET - MESSAGE_OFFSET, "%s", text);
	atomic_fetch_add(word(WORD_ERRORS), 1);
}

// reload reads the script, which has changed or was never read. One that cannot
// be read leaves the one before in force.
static void reload(void) {
	char error[512] = "neither LIBRARY.node nor the variable WARPGAUGE_FAKE_NVML names a script";
	struct state *s = NULL;
	uint64_t g = 0;
	if (find_script()) {
		map_control();
		g = generation();
		s = read_script(script_path, error, sizeof error);
	}
	if (s) {
		if (current && --current->references == 0)
			free_state(current);
		current = s;
		current->references = 1;
	} else {
		complain(error);
	}
	if (current)
		current->generation = g; // do not read the same bad one at every call
}

const struct state *acquire(void) {
	pthread_mutex_lock(&lock);
	if (!current || current->generation != generation())
		reload();
	struct state *s = current;
	if (s)
		s->references++;
	pthread_mutex_unlock(&lock);
	return s;
}

void release(const struct state *shared) {
	struct state *s = (struct state *)shared;
	pthread_mutex_lock(&lock);
	if (--s->references == 0)
		free_state(s);
	pthread_mutex_unlock(&lock);
}
