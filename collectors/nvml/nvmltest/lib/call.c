// The start of every call: it counts the call, checks that the library is initialised, looks
// the device up and applies the fault.
#include "fake.h"

atomic_uint initialised;

// Handles outlive shutdown, scripts and GPUs, because callers keep the pointers.
static struct nvmlDevice_st handles[MAX_GPUS][HANDLES];

nvmlDevice_t handle_of(int gpu, int gi, int ci) {
	struct nvmlDevice_st *h = &handles[gpu][gi < 0 ? 0 : 1 + gi % 16 * 16 + ci % 16];
	// Idempotent: every caller writes the same value.
	__atomic_store_n(&h->gpu, gpu, __ATOMIC_RELAXED);
	__atomic_store_n(&h->gi, gi, __ATOMIC_RELAXED);
	__atomic_store_n(&h->ci, ci, __ATOMIC_RELAXED);
	return h;
}

bool is_handle(const void *p) {
	uintptr_t a = (uintptr_t)p, first = (uintptr_t)handles;
	return a >= first && a < first + sizeof handles && (a - first) % sizeof(struct nvmlDevice_st) == 0;
}

// find sets the call's GPU and instance.
static nvmlReturn_t find(struct call *c, nvmlDevice_t d) {
	if (!is_handle(d))
		return NVML_ERROR_INVALID_ARGUMENT;
	int n = __atomic_load_n(&d->gpu, __ATOMIC_RELAXED), gi = __atomic_load_n(&d->gi, __ATOMIC_RELAXED);
	if (n >= c->s->gpu_count)
		return NVML_ERROR_INVALID_ARGUMENT;
	c->g = &c->s->gpus[n];
	if (c->g->absent)
		return NVML_ERROR_GPU_IS_LOST;
	if (gi < 0)
		return NVML_SUCCESS;
	for (int i = 0; i < c->g->instance_count; i++) {
		const struct instance *m = &c->g->instances[i];
		if ((int)m->gi == gi && (int)m->ci == __atomic_load_n(&d->ci, __ATOMIC_RELAXED)) {
			c->m = m;
			return NVML_SUCCESS;
		}
	}
	return NVML_ERROR_INVALID_ARGUMENT;
}

// fault_of returns a function's fault, which overrides the fault of every function.
static struct fault fault_of(const struct call *c, enum function f) {
	const struct fault *list = c->s->faults[c->g ? c->g->number : HOST];
	return list ? merge(list[f], list[FN_EVERY]) : (struct fault){0};
}

// Faults of every function do not apply to functions that work without the driver.
static bool exempt(enum function f) { return f == FN_nvmlShutdown || f == FN_nvmlSystemGetNVMLVersion; }

// hang returns when the script changes.
static void hang(struct call *c) {
	uint64_t seen = c->s->generation;
	release(c->s);
	atomic_fetch_add(word(WORD_HANGING), 1);
	await_change(seen);
	atomic_fetch_sub(word(WORD_HANGING), 1);
	c->s = acquire();
}

static void delay(struct call *c, unsigned us) {
	release(c->s);
	pause_us(us);
	c->s = acquire();
}

// obey looks the device up (host functions: d is NULL) and applies its faults. The script may
// change while a call waits, so obey starts over after each wait.
static nvmlReturn_t obey(struct call *c, bool device, nvmlDevice_t d) {
	bool delayed = false;
	for (;;) {
		nvmlReturn_t r = NVML_SUCCESS;
		c->g = NULL;
		c->m = NULL;
		if (device && (r = find(c, d)) != NVML_SUCCESS)
			return r;
		struct fault f = fault_of(c, c->function);
		if (!device && exempt(c->function))
			f = c->s->faults[HOST] ? c->s->faults[HOST][c->function] : (struct fault){0};
		if (f.hangs) {
			hang(c);
			continue;
		}
		if (f.delay_us && !delayed) {
			delayed = true;
			delay(c, f.delay_us);
			continue;
		}
		c->now = simulated_time(c->s);
		return f.answers ? (nvmlReturn_t)f.code : NVML_SUCCESS;
	}
}

static nvmlReturn_t begin(struct call *c, enum function f, bool needs_init) {
	*c = (struct call){.function = f};
	count_call(f);
	if (needs_init && atomic_load(&initialised) == 0)
		return NVML_ERROR_UNINITIALIZED;
	c->s = acquire();
	return c->s ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

// finish releases the script if the call ends here.
static nvmlReturn_t finish(struct call *c, nvmlReturn_t r) { return r == NVML_SUCCESS ? r : leave(c, r); }

nvmlReturn_t enter_any(struct call *c, enum function f, nvmlDevice_t d) {
	nvmlReturn_t r = begin(c, f, true);
	return r == NVML_SUCCESS ? finish(c, obey(c, true, d)) : r;
}

nvmlReturn_t enter_gpu(struct call *c, enum function f, nvmlDevice_t d) {
	nvmlReturn_t r = enter_any(c, f, d);
	if (r == NVML_SUCCESS && c->m)
		return leave(c, NVML_ERROR_NOT_SUPPORTED);
	return r;
}

nvmlReturn_t enter_host(struct call *c, enum function f, bool needs_init) {
	nvmlReturn_t r = begin(c, f, needs_init);
	return r == NVML_SUCCESS ? finish(c, obey(c, false, NULL)) : r;
}

// enter_again continues with a device that the call has looked up itself.
nvmlReturn_t enter_again(struct call *c, nvmlDevice_t d) { return finish(c, obey(c, true, d)); }

nvmlReturn_t leave(struct call *c, nvmlReturn_t r) {
	release(c->s);
	return r;
}

// stub implements the functions marked STUB.
int stub(enum function f, void *first);
int stub(enum function f, void *first) {
	struct call c;
	nvmlReturn_t r = is_handle(first) ? enter_any(&c, f, first) : enter_host(&c, f, true);
	return r == NVML_SUCCESS ? leave(&c, NVML_ERROR_NOT_SUPPORTED) : r;
}
