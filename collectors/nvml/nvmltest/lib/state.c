// The current script.
#define _GNU_SOURCE
#include "fake.h"

#include <pthread.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // protects current and references
static struct state *current;

uint64_t monotonic(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

double simulated_time(const struct state *s) {
	if (s->frozen)
		return s->at;
	uint64_t epoch = s->epoch ? s->epoch : atomic_load(word(WORD_EPOCH));
	return ((double)monotonic() - (double)epoch) / 1e9;
}

// reload reads a new or changed script. If it cannot be read, the previous one stays.
static void reload(void) {
	uint64_t g, unset = 0;
	struct state *s = read_state(&g);
	atomic_compare_exchange_strong(word(WORD_EPOCH), &unset, monotonic());
	if (s && !s->gpus) {
		complain("the script does not say how many gpus there are");
		free_state(s);
		s = NULL;
	}
	if (s) {
		if (current && --current->references == 0)
			free_state(current);
		current = s;
		current->references = 1;
	}
	if (current)
		current->generation = g; // do not read the same invalid script at every call
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
