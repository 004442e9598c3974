// Event sets. Events are script lines with increasing numbers. A set reports the events after a
// GPU's registration.
#include "fake.h"

#include <pthread.h>
#include <stdlib.h>

struct nvmlEventSet_st {
	struct nvmlEventSet_st *next;
	uint64_t types[MAX_GPUS]; // 0: not registered
	uint64_t after[MAX_GPUS]; // the set does not report this event and earlier ones
	uint64_t seen;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // protects all sets
static struct nvmlEventSet_st *sets;

static bool known(const struct nvmlEventSet_st *set) {
	for (const struct nvmlEventSet_st *s = sets; s; s = s->next)
		if (s == set)
			return true;
	return false;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *out) {
	SYSTEM(nvmlEventSetCreate);
	struct nvmlEventSet_st *set = out ? calloc(1, sizeof *set) : NULL;
	if (!set)
		LEAVE(out ? NVML_ERROR_MEMORY : NVML_ERROR_INVALID_ARGUMENT);
	pthread_mutex_lock(&lock);
	set->next = sets;
	sets = set;
	pthread_mutex_unlock(&lock);
	atomic_fetch_add(word(WORD_EVENT_SETS), 1);
	*out = set;
	LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
	SYSTEM(nvmlEventSetFree);
	nvmlReturn_t r = NVML_ERROR_INVALID_ARGUMENT;
	pthread_mutex_lock(&lock);
	for (struct nvmlEventSet_st **p = &sets; *p; p = &(*p)->next)
		if (*p == set) {
			*p = set->next;
			free(set);
			atomic_fetch_sub(word(WORD_EVENT_SETS), 1);
			r = NVML_SUCCESS;
			break;
		}
	pthread_mutex_unlock(&lock);
	LEAVE(r);
}

static uint64_t newest(const struct state *s) { return s->event_count ? s->events[s->event_count - 1].id : 0; }

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t d, unsigned long long types, nvmlEventSet_t set) {
	GPU(nvmlDeviceRegisterEvents, d);
	unsigned long long can;
	nvmlReturn_t r = get_ull(&c, K_EVENTS, &can);
	if (r == NVML_SUCCESS && (types & ~can))
		r = NVML_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&lock);
	if (r == NVML_SUCCESS && !known(set))
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS) {
		if (!set->types[c.g->number])
			set->after[c.g->number] = newest(c.s);
		set->types[c.g->number] |= types;
	}
	pthread_mutex_unlock(&lock);
	LEAVE(r);
}

// take reports the oldest event that the set has not reported.
static nvmlReturn_t take(const struct state *s, struct nvmlEventSet_st *set, nvmlEventData_t *out) {
	nvmlReturn_t r = NVML_ERROR_TIMEOUT;
	pthread_mutex_lock(&lock);
	if (!known(set))
		r = NVML_ERROR_INVALID_ARGUMENT;
	for (int i = 0; i < s->event_count && r == NVML_ERROR_TIMEOUT; i++) {
		const struct event *e = &s->events[i];
		if (e->id <= set->seen || e->id <= set->after[e->gpu] || !(set->types[e->gpu] & e->type))
			continue;
		set->seen = e->id;
		*out = (nvmlEventData_t){handle_of(e->gpu, -1, -1), e->type, e->data, e->gi, e->ci};
		r = NVML_SUCCESS;
	}
	// A set with a lost GPU reports the loss after all its events.
	for (int g = 0; g < s->gpu_count && r == NVML_ERROR_TIMEOUT; g++)
		if (set->types[g] && (s->gpus[g].absent || (s->faults[g] && s->faults[g][FN_EVERY].answers && s->faults[g][FN_EVERY].code == NVML_ERROR_GPU_IS_LOST)))
			r = NVML_ERROR_GPU_IS_LOST;
	pthread_mutex_unlock(&lock);
	return r;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *out, unsigned timeout) {
	SYSTEM(nvmlEventSetWait_v2);
	uint64_t until = monotonic() + (uint64_t)timeout * 1000000;
	nvmlReturn_t r = out ? take(c.s, set, out) : NVML_ERROR_INVALID_ARGUMENT;
	while (r == NVML_ERROR_TIMEOUT && timeout > 0 && monotonic() < until) {
		uint64_t g = c.s->generation;
		release(c.s);
		while (generation() == g && monotonic() < until && atomic_load(&initialised) > 0)
			pause_us(1000);
		c.s = acquire();
		r = atomic_load(&initialised) > 0 ? take(c.s, set, out) : NVML_ERROR_UNINITIALIZED;
	}
	LEAVE(r);
}
