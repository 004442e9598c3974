//go:build linux && cgo

#include "answers.h"
#include "processes.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef void *device;

// nvmlProcessInfo_v2_t, which _v2 and _v3 of the functions fill. Drivers from
// 535.43 to 535.86 fill _v3's with eight bytes more each, without another name for
// it, and there were reports of eight less:
// https://github.com/XuehaiPan/nvitop/pull/79 and 226.
struct info {
	unsigned int pid;
	unsigned long long memory;
	unsigned int instance, compute;
};
_Static_assert(sizeof(struct info) == 24, "nvmlProcessInfo_v2_t");
enum {
	INFO_SHORT = offsetof(struct info, instance),
	INFO_LONG = sizeof(struct info) + 8,
};

struct sample {
	unsigned int pid;
	unsigned long long stamp;
	unsigned int sm, memory, encoder, decoder;
};
_Static_assert(sizeof(struct sample) == 32, "nvmlProcessUtilizationSample_t");

struct sample_v1 {
	unsigned long long stamp;
	unsigned int pid, sm, memory, encoder, decoder, jpeg, ofa;
};
_Static_assert(sizeof(struct sample_v1) == 40, "nvmlProcessUtilizationInfo_v1_t");

struct samples_v1 {
	unsigned int version, count;
	unsigned long long since;
	struct sample_v1 *sample;
};
_Static_assert(sizeof(struct samples_v1) == 24, "nvmlProcessesUtilizationInfo_v1_t");
#define SAMPLES_VERSION ((unsigned int)sizeof(struct samples_v1) | 1u << 24)

enum { NO_INSTANCE = -1 }; // in gpuInstanceId

typedef int (*list_fn)(device, unsigned int *, void *);
typedef int (*busy_fn)(device, struct samples_v1 *);
typedef int (*busy_old_fn)(device, struct sample *, unsigned int *, unsigned long long);

struct wg_processes {
	device dev;
	bool outside;
	list_fn list[WG_LISTS];
	busy_fn busy;
	busy_old_fn busy_old;

	void *buffer; // of room entries of ENTRY bytes
	unsigned int room;
};

enum {
	ENTRY = 40, // the largest of the structs
	ROOM = 128, // at first
	FILLER = 0xa5,
};
_Static_assert((int)ENTRY >= (int)INFO_LONG && ENTRY >= sizeof(struct sample) && ENTRY >= sizeof(struct sample_v1), "ENTRY");

static bool grow(struct wg_processes *p, unsigned int room)
{
	if (room < 2 * p->room)
		room = 2 * p->room;
	if (room > WG_MOST_PROCESSES)
		room = WG_MOST_PROCESSES;
	if (room <= p->room)
		return false;
	void *more = realloc(p->buffer, (size_t)room * ENTRY);
	if (more == NULL)
		return false;
	p->buffer = more;
	p->room = room;
	return true;
}

struct wg_processes *wg_processes_new(uint64_t dev, int outside, void *compute, void *graphics, void *mps, void *busy, void *busy_old)
{
	struct wg_processes *p = calloc(1, sizeof *p);
	if (p == NULL)
		return NULL;
	p->dev = (device)(uintptr_t)dev;
	p->outside = outside != 0;
	p->list[WG_COMPUTE] = (list_fn)compute;
	p->list[WG_GRAPHICS] = (list_fn)graphics;
	p->list[WG_MPS] = (list_fn)mps;
	p->busy = (busy_fn)busy;
	p->busy_old = (busy_old_fn)busy_old;
	if (!grow(p, ROOM)) {
		free(p);
		return NULL;
	}
	return p;
}

void wg_processes_free(struct wg_processes *p)
{
	if (p != NULL)
		free(p->buffer);
	free(p);
}

// stride finds out how long each of the entries is that the driver has written, by
// the last byte that is no filler: before the list is known its version is not.
static size_t stride(const unsigned char *buffer, size_t count)
{
	size_t end = count * INFO_LONG;
	while (end > 0 && buffer[end - 1] == FILLER)
		end--;
	if (end <= count * INFO_SHORT)
		return INFO_SHORT;
	return end <= count * sizeof(struct info) ? sizeof(struct info) : INFO_LONG;
}

// put adds a process, or what another list says of one.
static void put(struct wg_processes *p, const struct info *info, unsigned int list, struct wg_process *to, uint32_t room,
		struct wg_process_answer *a)
{
	if (p->outside && info->instance != (unsigned int)NO_INSTANCE)
		return;
	if (info->pid == 0) {
		a->nameless++;
		return;
	}
	double memory = info->memory == ULLONG_MAX ? NAN : (double)info->memory;
	for (uint32_t i = 0; i < a->processes; i++) {
		if (to[i].pid != info->pid)
			continue;
		if (isnan(to[i].memory) || memory > to[i].memory)
			to[i].memory = memory; // each list tells all that it has
		to[i].lists |= 1u << list;
		return;
	}
	if (a->processes == room) {
		a->more = 1;
		return;
	}
	to[a->processes++] = (struct wg_process){memory, info->pid, 1u << list};
}

static int ask_list(struct wg_processes *p, unsigned int list, struct wg_process *to, uint32_t room, struct wg_process_answer *a)
{
	unsigned int count;
	int code;
	do {
		count = p->room;
		memset(p->buffer, FILLER, (size_t)p->room * ENTRY);
		a->made[list]++;
		code = p->list[list](p->dev, &count, p->buffer);
	} while (code == WG_INSUFFICIENT_SIZE && grow(p, count + count / 4));
	if (code != WG_SUCCESS || count > p->room)
		return code == WG_SUCCESS ? WG_INSUFFICIENT_SIZE : code;
	const unsigned char *entry = p->buffer;
	size_t size = stride(entry, count);
	for (unsigned int i = 0; i < count; i++, entry += size) {
		struct info info = {.instance = (unsigned int)NO_INSTANCE};
		memcpy(&info, entry, size < sizeof info ? size : sizeof info);
		put(p, &info, list, to, room, a);
	}
	return code;
}

static void put_sample(struct wg_busy *to, uint32_t room, struct wg_process_answer *a, struct wg_busy s)
{
	if (a->samples == room)
		a->more = 1;
	else
		to[a->samples++] = s;
}

static int ask_busy(struct wg_processes *p, uint64_t since, struct wg_busy *to, uint32_t room, struct wg_process_answer *a)
{
	struct samples_v1 q;
	int code;
	do {
		q = (struct samples_v1){SAMPLES_VERSION, p->room, since, p->buffer};
		a->made[WG_BUSY]++;
		code = p->busy(p->dev, &q);
	} while (code == WG_INSUFFICIENT_SIZE && grow(p, q.count + q.count / 4));
	if (code == WG_SUCCESS && q.count > p->room)
		code = WG_INSUFFICIENT_SIZE;
	for (unsigned int i = 0; code == WG_SUCCESS && i < q.count; i++) {
		const struct sample_v1 *s = &q.sample[i];
		put_sample(to, room, a, (struct wg_busy){s->stamp, s->pid, s->sm});
	}
	return code;
}

static int ask_busy_old(struct wg_processes *p, uint64_t since, struct wg_busy *to, uint32_t room, struct wg_process_answer *a)
{
	unsigned int count;
	int code;
	do {
		count = p->room;
		a->made[WG_BUSY]++;
		code = p->busy_old(p->dev, p->buffer, &count, since);
	} while (code == WG_INSUFFICIENT_SIZE && grow(p, count + count / 4));
	if (code == WG_SUCCESS && count > p->room)
		code = WG_INSUFFICIENT_SIZE;
	const struct sample *s = p->buffer;
	for (unsigned int i = 0; code == WG_SUCCESS && i < count; i++)
		put_sample(to, room, a, (struct wg_busy){s[i].stamp, s[i].pid, s[i].sm});
	return code;
}

void wg_processes_ask(struct wg_processes *p, uint64_t since, struct wg_process *processes, uint32_t nprocesses,
		      struct wg_busy *samples, uint32_t nsamples, struct wg_process_answer *answer)
{
	struct wg_process_answer a = {0};
	int code = WG_SUCCESS;
	for (unsigned int i = 0; i < WG_PROCESS_CALLS; i++)
		a.code[i] = WG_FUNCTION_NOT_FOUND;
	for (unsigned int i = 0; i < WG_LISTS && !wg_fatal(code); i++) {
		if (p->list[i] == NULL)
			continue;
		int64_t start = wg_now();
		code = a.code[i] = ask_list(p, i, processes, nprocesses, &a);
		a.nanos[i] = (uint64_t)(wg_now() - start);
	}
	if (!wg_fatal(code)) {
		int64_t start = wg_now();
		if (p->busy != NULL) {
			code = ask_busy(p, since, samples, nsamples, &a);
			if (p->busy_old != NULL && (code == WG_NOT_SUPPORTED || code == WG_FUNCTION_NOT_FOUND || code == WG_ARGUMENT_VERSION_MISMATCH))
				p->busy = NULL; // for good: it is the driver's, or the device's, nature
			a.code[WG_BUSY] = code;
		}
		if (p->busy == NULL && p->busy_old != NULL)
			a.code[WG_BUSY] = ask_busy_old(p, since, samples, nsamples, &a);
		a.nanos[WG_BUSY] = (uint64_t)(wg_now() - start);
	}
	*answer = a;
}
