// Processes on a GPU.
#include "fake.h"

#include <stddef.h>
#include <string.h>

// list copies processes of a type into structs of any version: all begin with the
// pid and the memory, and from the second on the instance follows.
static nvmlReturn_t list(const struct call *c, char type, unsigned *count, void *out, size_t size) {
	unsigned have = 0;
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (int i = 0; i < c->g->process_count; i++) {
		const struct process *p = &c->g->processes[i];
		if (p->type != type || (c->m && (p->gi != (unsigned)c->m->gi || p->ci != (unsigned)c->m->ci)))
			continue;
		if (out && have < *count) {
			nvmlProcessInfo_t info = {p->pid, p->memory, p->gi, p->ci};
			memcpy((char *)out + have * size, &info, size);
		}
		have++;
	}
	bool fits = have <= *count && (out || have == 0);
	*count = have;
	return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

#define PROCESSES_OF(f, type, info)                                                                                            \
	nvmlReturn_t f(nvmlDevice_t d, unsigned *count, info *out) {                                                            \
		ANY(f, d);                                                                                                      \
		LEAVE(list(&c, type, count, out, sizeof *out));                                                                 \
	}

_Static_assert(sizeof(nvmlProcessInfo_v1_t) == offsetof(nvmlProcessInfo_t, gpuInstanceId), "v1 is the beginning of v2");
PROCESSES_OF(nvmlDeviceGetComputeRunningProcesses, 'C', nvmlProcessInfo_v1_t)
PROCESSES_OF(nvmlDeviceGetComputeRunningProcesses_v2, 'C', nvmlProcessInfo_v2_t)
PROCESSES_OF(nvmlDeviceGetComputeRunningProcesses_v3, 'C', nvmlProcessInfo_t)
PROCESSES_OF(nvmlDeviceGetGraphicsRunningProcesses, 'G', nvmlProcessInfo_v1_t)
PROCESSES_OF(nvmlDeviceGetGraphicsRunningProcesses_v2, 'G', nvmlProcessInfo_v2_t)
PROCESSES_OF(nvmlDeviceGetGraphicsRunningProcesses_v3, 'G', nvmlProcessInfo_t)
PROCESSES_OF(nvmlDeviceGetMPSComputeRunningProcesses, 'M', nvmlProcessInfo_v1_t)
PROCESSES_OF(nvmlDeviceGetMPSComputeRunningProcesses_v2, 'M', nvmlProcessInfo_v2_t)
PROCESSES_OF(nvmlDeviceGetMPSComputeRunningProcesses_v3, 'M', nvmlProcessInfo_t)

static unsigned percent(const struct call *c, const struct cell *cell) {
	double v = 0;
	return value_of(c, cell, 0, load_at(c), work_until(c), &v) == NVML_SUCCESS ? (unsigned)v : 0;
}

// One sample per process, as of now.
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t d, nvmlProcessUtilizationSample_t *out, unsigned *count, unsigned long long since) {
	GPU(nvmlDeviceGetProcessUtilization, d);
	unsigned long long now = (unsigned long long)(c.now * 1e6);
	unsigned have = 0, mig = 0;
	if (!count)
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	if (get_uint(&c, K_MIG_MODE, &mig) == NVML_SUCCESS && mig)
		LEAVE(NVML_ERROR_NOT_SUPPORTED);
	for (int i = 0; i < c.g->process_count; i++) {
		const struct process *p = &c.g->processes[i];
		if (p->sm.kind == UNSUPPORTED || now <= since)
			continue;
		if (out && have < *count)
			out[have] = (nvmlProcessUtilizationSample_t){p->pid, now, percent(&c, &p->sm), percent(&c, &p->mem), percent(&c, &p->enc), percent(&c, &p->dec)};
		have++;
	}
	bool fits = out && have <= *count;
	*count = have;
	if (have == 0)
		LEAVE(NVML_ERROR_NOT_FOUND);
	LEAVE(fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE);
}
