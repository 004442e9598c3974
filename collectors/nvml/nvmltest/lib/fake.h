// A simulated libnvidia-ml.so.1; README.md in the folder above describes it. Prototypes and
// structs come from NVIDIA's nvml.h in go-nvml.
#ifndef NVMLTEST_FAKE_H
#define NVMLTEST_FAKE_H

#define NVML_NO_UNVERSIONED_FUNC_DEFS // v1 functions are separate functions
#include <nvml.h>

#include "keys.h"
#include "simulated.h"

enum {
	MAX_GPUS = 32,
	MAX_LINKS = 36, // NVML_NVLINK_MAX_LINKS
	HOST = MAX_GPUS,       // index of the faults of functions without a device
	HANDLES = 1 + 16 * 16, // per GPU: itself, then instances by gi * 16 + ci
};

// The target of a device handle.
struct nvmlDevice_st {
	int gpu;
	int gi, ci; // -1 for the GPU itself
};

// A value in the script.
struct cell {
	enum { UNSUPPORTED, CODE, CONSTANT, EXPRESSION, STRING } kind;
	int index; // in its key, for the variable i
	union {
		int code; // nvmlReturn_t
		double number;
		const char *text; // also an expression's text
	};
};

// A stretch of a GPU's load, which lasts until the next one starts: a wave around a base.
struct load {
	double at, before; // when it starts, and the load's integral until then
	double base, amplitude, period, phase;
};

// The structs below hold script lines of key=value words; see script.c.

struct process {
	unsigned pid, gi, ci;
	char type; // C, G, M
	unsigned long long memory;
	struct cell sm;
};

struct profile {
	char name[64];
	unsigned number, id, slices, sms, copies, count;
	unsigned long long memory; // MiB
};

struct instance {
	struct profile profile;
	char uuid[NVML_DEVICE_UUID_BUFFER_SIZE];
	unsigned gi, ci;
	unsigned slices; // of the compute instance
	double share;    // of the GPU's load
};

struct gpu {
	int number;
	bool absent;
	struct cell cells[K_COUNT];
	struct load *loads;
	struct instance *instances;
	struct profile *profiles;
	struct process *processes;
	int load_count, instance_count, profile_count, process_count;
};

struct event {
	uint64_t id, type, data;
	int gpu;
	unsigned gi, ci;
};

struct block;

// A parsed script. It is immutable; its users hold references.
struct state {
	int references; // protected by the lock in state.c
	uint64_t generation;
	struct block *blocks; // all memory that it points to
	char driver[80], nvml[80], dev[4096];
	int cuda, fields, gpm;
	bool frozen;
	double at;      // seconds, while frozen
	uint64_t epoch; // ns of CLOCK_MONOTONIC
	int gpu_count;
	struct gpu *gpus;
	struct fault *faults[MAX_GPUS + 1]; // NULL, or FN_COUNT + 1 of them
	struct event *events;
	int event_count;
};

// One call while it runs.
struct call {
	enum function function;
	const struct state *s;
	const struct gpu *g;      // NULL for functions without a device
	const struct instance *m; // NULL unless the device is an instance
	double now;               // simulated seconds
};

// This library's words in the control file; library.go has the same list.
enum {
	WORD_INITS = WORD_FIRST_OWN, // initialisations minus shutdowns, as NVML counts them, of all processes
	WORD_FILES,                  // open devices
	WORD_EVENT_SETS,
	WORD_SAMPLES, // GPM samples
	WORD_EPOCH,   // CLOCK_MONOTONIC in ns at time 0 of a script without an epoch
};

// state.c
const struct state *acquire(void); // the current script, or NULL
void release(const struct state *s);
uint64_t monotonic(void);
double simulated_time(const struct state *s);

// call.c
nvmlReturn_t enter_any(struct call *c, enum function f, nvmlDevice_t d);
nvmlReturn_t enter_gpu(struct call *c, enum function f, nvmlDevice_t d);
nvmlReturn_t enter_host(struct call *c, enum function f, bool initialised);
nvmlReturn_t enter_again(struct call *c, nvmlDevice_t d);
nvmlReturn_t leave(struct call *c, nvmlReturn_t r);
nvmlDevice_t handle_of(int gpu, int gi, int ci);
bool is_handle(const void *p);
extern atomic_uint initialised;

#define ANY(f, d)                                                                                                              \
	struct call c;                                                                                                         \
	nvmlReturn_t entered = enter_any(&c, FN_##f, d);                                                                        \
	if (entered != NVML_SUCCESS)                                                                                            \
		return entered
#define GPU(f, d)                                                                                                              \
	struct call c;                                                                                                         \
	nvmlReturn_t entered = enter_gpu(&c, FN_##f, d);                                                                        \
	if (entered != NVML_SUCCESS)                                                                                            \
		return entered
#define SYSTEM(f)                                                                                                              \
	struct call c;                                                                                                         \
	nvmlReturn_t entered = enter_host(&c, FN_##f, true);                                                                    \
	if (entered != NVML_SUCCESS)                                                                                            \
		return entered
#define LEAVE(r) return leave(&c, r)

// value.c
double load_at(const struct call *c);
double work_until(const struct call *c);
nvmlReturn_t value(const struct call *c, int key, double *out);
nvmlReturn_t value_of(const struct call *c, const struct cell *cell, double load, double work, double *out);
nvmlReturn_t get_uint(const struct call *c, int key, unsigned *out);
nvmlReturn_t get_int(const struct call *c, int key, int *out);
nvmlReturn_t get_ull(const struct call *c, int key, unsigned long long *out);
nvmlReturn_t get_text(const struct call *c, int key, char *out, unsigned length);
nvmlReturn_t put_text(const char *text, char *out, unsigned length);
double load_until(const struct load *l, double t); // a stretch's integral from its start to t

// script.c
void *keep(struct state *s, size_t size); // zeroed memory that is freed with s

// expression.c
struct variables {
	double t, gpu, i, load, work;
};
// check_expression evaluates without variables; constant is false if the text uses one.
bool check_expression(const char *text, bool *constant, double *number, char *error, size_t size);
double evaluate(const char *text, const struct variables *v);

// fields.c
void field_value(const struct call *c, nvmlFieldValue_t *f);

// Structs with a version field encode their size and version in it.
#define HAS_VERSION(p, symbol) ((p) && (p)->version == (symbol))

#endif
