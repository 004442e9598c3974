// The common part of every call: the current script, faults, the lock.
#include "fake.h"

#include <pthread.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // over S and the engine
struct state *S;

int64_t now_micros(void) {
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

dcgmReturn_t wrong_version(void) {
	atomic_fetch_add(word(WORD_VERSIONS), 1);
	return leave(DCGM_ST_VER_MISMATCH);
}

dcgmReturn_t beyond_limit(dcgmReturn_t r) {
	atomic_fetch_add(word(WORD_LIMITS), 1);
	return leave(r);
}

// reload reads the script if it has changed. If that fails, the previous script stays
// current.
static void reload(void) {
	uint64_t g;
	if (S && S->generation == generation()) return;
	struct state *s = read_state(&g);
	if (s) {
		if (S) free_state(S);
		S = s;
	}
	if (S) S->generation = g; // do not read the same bad script at every call
}

// cleans_up reports whether a function releases something. Faults of every function
// spare these, so that a test of an error can check the clean-up.
static bool cleans_up(enum function f) {
	return f == FN_dcgmDisconnect || f == FN_dcgmStopEmbedded || f == FN_dcgmGroupDestroy ||
	       f == FN_dcgmFieldGroupDestroy || f == FN_dcgmUnwatchFields;
}

static struct fault fault_of(enum function f) {
	struct fault every = S->faults[FN_EVERY];
	if (cleans_up(f)) every.answers = false;
	return merge(S->faults[f], every);
}

// planned counts down to the call that must fail.
static bool planned(enum function f, dcgmReturn_t *r) {
	if (cleans_up(f) || atomic_load(word(WORD_FAIL_AT)) == 0) return false;
	if (atomic_fetch_sub(word(WORD_FAIL_AT), 1) != 1) return false;
	atomic_store(word(WORD_FAILED), (uint64_t)f + 1);
	*r = (dcgmReturn_t)-(int64_t)atomic_load(word(WORD_FAIL_CODE));
	return true;
}

// hang unlocks and returns when the fault ends.
static void hang(enum function f) {
	atomic_fetch_add(word(WORD_HANGING), 1);
	while (S && fault_of(f).hangs) {
		uint64_t seen = S->generation;
		pthread_mutex_unlock(&lock);
		await_change(seen);
		pthread_mutex_lock(&lock);
		reload();
	}
	atomic_fetch_sub(word(WORD_HANGING), 1);
}

dcgmReturn_t enter(enum function f) {
	dcgmReturn_t r = DCGM_ST_OK;
	pthread_mutex_lock(&lock);
	reload();
	count_call(f);
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
