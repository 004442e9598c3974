// Processes on a GPU.
#include "fake.h"

#include <stdio.h>
#include <string.h>

// Drivers 535.43 to 535.86 use this struct under the third version's name.
struct long_info {
	nvmlProcessInfo_t info;
	unsigned long long protected_memory;
};

static bool has_long_info(const struct call *c) {
	int major = 0, minor = 0;
	return sscanf(c->s->driver, "%d.%d", &major, &minor) == 2 && major == 535 && minor >= 43 && minor < 98;
}

// list copies processes of a type into structs of any version: all start with the same members.
static nvmlReturn_t list(const struct call *c, char type, unsigned *count, void *out, size_t size) {
	unsigned have = 0;
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (int i = 0; i < c->g->process_count; i++) {
		const struct process *p = &c->g->processes[i];
		if (p->type != type || (c->m && (p->gi != c->m->gi || p->ci != c->m->ci)))
			continue;
		if (out && have < *count) {
			struct long_info info = {{p->pid, p->memory, p->gi, p->ci}, 0};
			memcpy((char *)out + have * size, &info, size);
		}
		have++;
	}
	bool fits = have <= *count && (out || have == 0);
	*count = have;
	return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

#define PROCESSES_OF(f, type)                                                                                                  \
	nvmlReturn_t f##_v2(nvmlDevice_t d, unsigned *count, nvmlProcessInfo_v2_t *out) {                                       \
		ANY(f##_v2, d);                                                                                                 \
		LEAVE(list(&c, type, count, out, sizeof *out));                                                                 \
	}                                                                                                                       \
	nvmlReturn_t f##_v3(nvmlDevice_t d, unsigned *count, nvmlProcessInfo_t *out) {                                          \
		ANY(f##_v3, d);                                                                                                 \
		LEAVE(list(&c, type, count, out, has_long_info(&c) ? sizeof(struct long_info) : sizeof *out));                  \
	}
PROCESSES_OF(nvmlDeviceGetComputeRunningProcesses, 'C')
PROCESSES_OF(nvmlDeviceGetGraphicsRunningProcesses, 'G')
PROCESSES_OF(nvmlDeviceGetMPSComputeRunningProcesses, 'M')

static unsigned percent(const struct call *c, const struct cell *cell) {
	double v = 0;
	return value_of(c, cell, load_at(c), work_until(c), &v) == NVML_SUCCESS ? (unsigned)v : 0;
}

// A sample with the members of the newest struct.
typedef nvmlProcessUtilizationInfo_v1_t sample;

// samples fills one sample per busy process if the current time is newer than since.
static unsigned samples(const struct call *c, unsigned long long since, sample *to, unsigned room) {
	unsigned long long now = (unsigned long long)(c->now * 1e6);
	unsigned have = 0;
	for (int i = 0; i < c->g->process_count; i++) {
		const struct process *p = &c->g->processes[i];
		unsigned sm = percent(c, &p->sm);
		if (now <= since || sm == 0)
			continue;
		if (to && have < room)
			to[have] = (sample){.timeStamp = now, .pid = p->pid, .smUtil = sm};
		have++;
	}
	return have;
}

// take copies samples. *count is the capacity of out, then the number of samples.
static nvmlReturn_t take(const struct call *c, unsigned long long since, sample *out, unsigned *count) {
	unsigned mig = 0;
	if (get_uint(c, K_MIG_MODE, &mig) == NVML_SUCCESS && mig)
		return NVML_ERROR_NOT_SUPPORTED;
	unsigned have = samples(c, since, out, *count);
	bool fits = out && have <= *count;
	*count = have;
	if (have == 0)
		return NVML_ERROR_NOT_FOUND;
	return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t d, nvmlProcessesUtilizationInfo_t *info) {
	GPU(nvmlDeviceGetProcessesUtilizationInfo, d);
	if (!HAS_VERSION(info, nvmlProcessesUtilizationInfo_v1))
		LEAVE(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	LEAVE(take(&c, info->lastSeenTimeStamp, info->procUtilArray, &info->processSamplesCount));
}
