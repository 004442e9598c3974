// The control file, the script in force, and what every call goes through.
#include "fake.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE_OFFSET = 1024, LOG_OFFSET = 2048, CALLS_OFFSET = 4096, CONTROL_SIZE = CALLS_OFFSET + 4096 };
_Static_assert(FN_COUNT <= 512, "more functions than the control file has counters");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // over S and the engine
static char script_path[4096];
struct state *S;

// Where the file cannot be mapped this memory stands for it.
static _Atomic uint64_t private_words[CONTROL_SIZE / 8];
static _Atomic(_Atomic uint64_t *) words = private_words;

_Atomic uint64_t *word(enum word w) { return atomic_load_explicit(&words, memory_order_acquire) + w; }

static char *text_at(size_t offset) { return (char *)word(WORD_MAGIC) + offset; }

int64_t now_micros(void) {
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void pause_us(uint64_t us) {
	nanosleep(&(struct timespec){(time_t)(us / 1000000), (long)(us % 1000000) * 1000}, NULL);
}

void set_log_file(const char *path) { snprintf(text_at(LOG_OFFSET), CALLS_OFFSET - LOG_OFFSET, "%s", path ? path : ""); }

dcgmReturn_t wrong_version(void) {
	atomic_fetch_add(word(WORD_VERSIONS), 1);
	return leave(DCGM_ST_VER_MISMATCH);
}

dcgmReturn_t beyond_limit(dcgmReturn_t r) {
	atomic_fetch_add(word(WORD_LIMITS), 1);
	return leave(r);
}

// locate finds the script beside the library, or by the environment.
static bool locate(void) {
	Dl_info info;
	const char *from = getenv("WARPGAUGE_FAKE_DCGM");
	if (script_path[0]) return true;
	if (dladdr((void *)locate, &info) && info.dli_fname) {
		char path[4096 + 16];
		snprintf(path, sizeof path, "%s.node", info.dli_fname);
		FILE *f = fopen(path, "re");
		if (f) {
			if (fgets(script_path, sizeof script_path, f)) script_path[strcspn(script_path, "\n")] = 0;
			fclose(f);
		}
	}
	if (!script_path[0] && from) snprintf(script_path, sizeof script_path, "%s", from);
	return script_path[0] != 0;
}

static void map_control(void) {
	char path[sizeof script_path + 16];
	if (atomic_load(&words) != private_words) return;
	snprintf(path, sizeof path, "%s.control", script_path);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0) return;
	if (lseek(fd, 0, SEEK_END) >= CONTROL_SIZE || ftruncate(fd, CONTROL_SIZE) == 0) {
		void *p = mmap(NULL, CONTROL_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (p != MAP_FAILED) atomic_store_explicit(&words, p, memory_order_release);
	}
	close(fd);
}

// reload reads the script if it has changed. One that cannot be read leaves the
// one before in force.
static void reload(void) {
	char error[512] = "neither LIBRARY.node nor the variable WARPGAUGE_FAKE_DCGM names a script";
	struct state *s = NULL;
	uint64_t g = 0;
	if (S && S->generation == atomic_load(word(WORD_GENERATION))) return;
	if (locate()) {
		map_control();
		g = atomic_load(word(WORD_GENERATION));
		s = read_script(script_path, error, sizeof error);
	}
	if (s) {
		if (S) free_state(S);
		S = s;
	} else {
		fprintf(stderr, "simulated DCGM: %s\n", error);
		snprintf(text_at(MESSAGE_OFFSET), LOG_OFFSET - MESSAGE_OFFSET, "%s", error);
		atomic_fetch_add(word(WORD_ERRORS), 1);
	}
	if (S) S->generation = g; // do not read the same bad one at every call
}

// What takes things back is left out of faults that mean every function, so that
// a test of an error sees whether it is done.
static bool cleans_up(enum function f) {
	return f == FN_dcgmShutdown || f == FN_dcgmDisconnect || f == FN_dcgmStopEmbedded || f == FN_dcgmGroupDestroy ||
	       f == FN_dcgmFieldGroupDestroy || f == FN_dcgmUnwatchFields;
}

static struct fault fault_of(enum function f) {
	struct fault out = S->faults[f], every = S->faults[FN_EVERY];
	out.hangs |= every.hangs;
	if (!out.delay_us) out.delay_us = every.delay_us;
	if (!out.answers && !cleans_up(f)) {
		out.answers = every.answers;
		out.code = every.code;
	}
	return out;
}

// planned counts down to the call that has to fail.
static bool planned(enum function f, dcgmReturn_t *r) {
	if (cleans_up(f) || atomic_load(word(WORD_FAIL_AT)) == 0) return false;
	if (atomic_fetch_sub(word(WORD_FAIL_AT), 1) != 1) return false;
	atomic_store(word(WORD_FAILED), (uint64_t)f + 1);
	*r = (dcgmReturn_t)-(int64_t)atomic_load(word(WORD_FAIL_CODE));
	return true;
}

// hang returns, unlocked, when the fault is gone.
static void hang(enum function f) {
	atomic_fetch_add(word(WORD_HANGING), 1);
	while (S && fault_of(f).hangs) {
		uint64_t seen = S->generation;
		pthread_mutex_unlock(&lock);
		while (atomic_load(word(WORD_GENERATION)) == seen) pause_us(500);
		pthread_mutex_lock(&lock);
		reload();
	}
	atomic_fetch_sub(word(WORD_HANGING), 1);
}

dcgmReturn_t enter(enum function f) {
	dcgmReturn_t r = DCGM_ST_OK;
	pthread_mutex_lock(&lock);
	reload();
	atomic_fetch_add_explicit(word(WORD_MAGIC) + CALLS_OFFSET / 8 + f, 1, memory_order_relaxed);
	if (!S) {
		pthread_mutex_unlock(&lock);
		return DCGM_ST_INIT_ERROR;
	}
	struct fault now = fault_of(f);
	if (now.delay_us) {
		pthread_mutex_unlock(&lock);
		pause_us(now.delay_us);
		pthread_mutex_lock(&lock);
		reload();
	}
	if (now.hangs) hang(f);
	now = fault_of(f);
	sweep();
	if (planned(f, &r)) return leave(r);
	if (now.answers && now.code != DCGM_ST_OK) return leave((dcgmReturn_t)now.code);
	return DCGM_ST_OK;
}

dcgmReturn_t leave(dcgmReturn_t r) {
	pthread_mutex_unlock(&lock);
	return r;
}
