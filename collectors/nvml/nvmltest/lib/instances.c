// MIG: a GPU's instances, their profiles and their properties. The functions of GPU instances
// and compute instances are the ones that NVIDIA's DCGM calls.
#include "fake.h"

#include <string.h>

// The target of a GPU instance's or compute instance's handle. The first compute instance of a
// GPU instance represents both.
struct nvmlGpuInstance_st {
	int gpu, gi;
};
struct nvmlComputeInstance_st {
	int gpu, gi, ci;
};

static struct nvmlGpuInstance_st gpu_instances[MAX_GPUS][16];
static struct nvmlComputeInstance_st compute_instances[MAX_GPUS][16][16];

static bool mig(const struct call *c) {
	unsigned mode = 0;
	return get_uint(c, K_MIG_MODE, &mode) == NVML_SUCCESS && mode;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t d, unsigned index, nvmlDevice_t *out) {
	GPU(nvmlDeviceGetMigDeviceHandleByIndex, d);
	unsigned most;
	nvmlReturn_t r = out ? get_uint(&c, K_MIG_MAX, &most) : NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && index >= most)
		r = NVML_ERROR_INVALID_ARGUMENT;
	else if (r == NVML_SUCCESS && (!mig(&c) || index >= (unsigned)c.g->instance_count))
		r = NVML_ERROR_NOT_FOUND;
	if (r == NVML_SUCCESS)
		*out = handle_of(c.g->number, (int)c.g->instances[index].gi, (int)c.g->instances[index].ci);
	LEAVE(r);
}

#define ID_OF(f, member)                                                                                                       \
	nvmlReturn_t f(nvmlDevice_t d, unsigned *out) {                                                                         \
		ANY(f, d);                                                                                                      \
		if (!c.m || !out)                                                                                               \
			LEAVE(NVML_ERROR_INVALID_ARGUMENT);                                                                     \
		*out = c.m->member;                                                                                             \
		LEAVE(NVML_SUCCESS);                                                                                            \
	}
ID_OF(nvmlDeviceGetGpuInstanceId, gi)
ID_OF(nvmlDeviceGetComputeInstanceId, ci)

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t d, nvmlDeviceAttributes_t *out) {
	ANY(nvmlDeviceGetAttributes_v2, d);
	if (!out || !c.m)
		LEAVE(out ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT);
	*out = (nvmlDeviceAttributes_t){
		.multiprocessorCount = c.m->profile.sms,
		.sharedCopyEngineCount = c.m->profile.copies,
		.sharedDecoderCount = c.m->profile.slices / 2,
		.gpuInstanceSliceCount = c.m->profile.slices,
		.computeInstanceSliceCount = c.m->slices,
		.memorySizeMB = c.m->profile.memory,
	};
	LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t d, unsigned number, nvmlGpuInstanceProfileInfo_t *out) {
	GPU(nvmlDeviceGetGpuInstanceProfileInfo, d);
	if (!out || number >= NVML_GPU_INSTANCE_PROFILE_COUNT)
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	for (int i = 0; mig(&c) && i < c.g->profile_count; i++) {
		const struct profile *p = &c.g->profiles[i];
		if (p->number != number)
			continue;
		*out = (nvmlGpuInstanceProfileInfo_t){
			.id = p->id,
			.sliceCount = p->slices,
			.instanceCount = p->count,
			.multiprocessorCount = p->sms,
			.copyEngineCount = p->copies,
			.decoderCount = p->slices / 2,
			.memorySizeMB = p->memory,
		};
		LEAVE(NVML_SUCCESS);
	}
	LEAVE(NVML_ERROR_NOT_SUPPORTED);
}

// Every caller writes the same value into a handle.
static nvmlGpuInstance_t instance_handle(int gpu, unsigned gi) {
	struct nvmlGpuInstance_st *h = &gpu_instances[gpu][gi % 16];
	__atomic_store_n(&h->gpu, gpu, __ATOMIC_RELAXED);
	__atomic_store_n(&h->gi, (int)gi, __ATOMIC_RELAXED);
	return h;
}

static nvmlComputeInstance_t compute_handle(int gpu, unsigned gi, unsigned ci) {
	struct nvmlComputeInstance_st *h = &compute_instances[gpu][gi % 16][ci % 16];
	__atomic_store_n(&h->gpu, gpu, __ATOMIC_RELAXED);
	__atomic_store_n(&h->gi, (int)gi, __ATOMIC_RELAXED);
	__atomic_store_n(&h->ci, (int)ci, __ATOMIC_RELAXED);
	return h;
}

nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t d, unsigned id, nvmlGpuInstance_t *out, unsigned *count) {
	GPU(nvmlDeviceGetGpuInstances, d);
	if (!out || !count)
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	*count = 0;
	for (int i = 0; i < c.g->instance_count; i++)
		if (c.g->instances[i].profile.id == id && c.g->instances[i].ci == 0)
			out[(*count)++] = instance_handle(c.g->number, c.g->instances[i].gi);
	LEAVE(NVML_SUCCESS);
}

// enter_instance starts a call whose handle is an array element: a GPU instance, or with ci a
// compute instance.
static nvmlReturn_t enter_instance(struct call *c, enum function f, const void *h, const void *array, size_t size, const int *ci) {
	if ((uintptr_t)h < (uintptr_t)array || (uintptr_t)h >= (uintptr_t)array + size)
		return NVML_ERROR_INVALID_ARGUMENT;
	const struct nvmlGpuInstance_st *in = h; // both start with gpu and gi
	nvmlReturn_t r = enter_any(c, f, handle_of(in->gpu, -1, -1));
	if (r != NVML_SUCCESS)
		return r;
	for (int i = 0; i < c->g->instance_count; i++)
		if ((int)c->g->instances[i].gi == in->gi && (!ci || (int)c->g->instances[i].ci == *ci)) {
			c->m = &c->g->instances[i];
			return NVML_SUCCESS;
		}
	return leave(c, NVML_ERROR_INVALID_ARGUMENT);
}

#define GPU_INSTANCE(f, h)                                                                                                     \
	struct call c;                                                                                                         \
	nvmlReturn_t entered = enter_instance(&c, FN_##f, h, gpu_instances, sizeof gpu_instances, NULL);                        \
	if (entered != NVML_SUCCESS)                                                                                            \
		return entered

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t h, nvmlGpuInstanceInfo_t *out) {
	GPU_INSTANCE(nvmlGpuInstanceGetInfo, h);
	*out = (nvmlGpuInstanceInfo_t){handle_of(h->gpu, -1, -1), (unsigned)h->gi, c.m->profile.id, {0, c.m->profile.slices}};
	LEAVE(NVML_SUCCESS);
}

// Here a compute instance profile's ID equals its enumeration value.
static unsigned compute_profile(const struct instance *m) { return m->slices == 7 ? 4 : m->slices - 1; }

nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t h, unsigned id, nvmlComputeInstance_t *out, unsigned *count) {
	GPU_INSTANCE(nvmlGpuInstanceGetComputeInstances, h);
	*count = 0;
	for (int i = 0; i < c.g->instance_count; i++) {
		const struct instance *m = &c.g->instances[i];
		if ((int)m->gi == h->gi && compute_profile(m) == id)
			out[(*count)++] = compute_handle(h->gpu, m->gi, m->ci);
	}
	LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t h, unsigned number, unsigned engine, nvmlComputeInstanceProfileInfo_t *out) {
	static const unsigned slices[] = {1, 2, 3, 4, 7, 8, 6, 1};
	GPU_INSTANCE(nvmlGpuInstanceGetComputeInstanceProfileInfo, h);
	if (!out || number >= sizeof slices / sizeof *slices || engine != 0)
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	if (slices[number] > c.m->profile.slices)
		LEAVE(NVML_ERROR_NOT_SUPPORTED);
	*out = (nvmlComputeInstanceProfileInfo_t){
		.id = number,
		.sliceCount = slices[number],
		.instanceCount = c.m->profile.slices / slices[number],
		.multiprocessorCount = c.m->profile.sms,
		.sharedCopyEngineCount = c.m->profile.copies,
	};
	LEAVE(NVML_SUCCESS);
}

static nvmlReturn_t compute_info(enum function f, nvmlComputeInstance_t h, nvmlComputeInstanceInfo_t *out) {
	struct call c;
	nvmlReturn_t r = enter_instance(&c, f, h, compute_instances, sizeof compute_instances, &h->ci);
	if (r != NVML_SUCCESS)
		return r;
	out->device = handle_of(h->gpu, -1, -1);
	out->gpuInstance = instance_handle(h->gpu, (unsigned)h->gi);
	out->id = (unsigned)h->ci;
	out->profileId = compute_profile(c.m);
	if (f == FN_nvmlComputeInstanceGetInfo_v2) // the first version lacks the placement
		out->placement = (nvmlComputeInstancePlacement_t){0, c.m->slices};
	LEAVE(NVML_SUCCESS);
}

// NVIDIA's host engine calls the first version.
#undef nvmlComputeInstanceGetInfo
nvmlReturn_t nvmlComputeInstanceGetInfo(nvmlComputeInstance_t h, nvmlComputeInstanceInfo_t *out) {
	return compute_info(FN_nvmlComputeInstanceGetInfo, h, out);
}

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t h, nvmlComputeInstanceInfo_t *out) {
	return compute_info(FN_nvmlComputeInstanceGetInfo_v2, h, out);
}
