// MIG: instances of a GPU, their profiles and what they have.
#include "fake.h"

#include <stdio.h>
#include <string.h>

// What a handle of a GPU instance or compute instance points to.
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

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t d, unsigned *out) {
	ANY(nvmlDeviceIsMigDeviceHandle, d);
	if (!out)
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	*out = c.m != NULL;
	LEAVE(NVML_SUCCESS);
}

// If the GPU has no MIG at all this is not supported.
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t d, unsigned *out) {
	GPU(nvmlDeviceGetMaxMigDeviceCount, d);
	LEAVE(get_uint(&c, K_MIG_MAX, out));
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
		*out = handle_of(c.g->number, c.g->instances[index].gi, c.g->instances[index].ci);
	LEAVE(r);
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t d, nvmlDevice_t *out) {
	ANY(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, d);
	if (!c.m || !out)
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	*out = handle_of(c.g->number, -1, -1);
	LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t d, unsigned *out) {
	ANY(nvmlDeviceGetGpuInstanceId, d);
	if (!c.m || !out)
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	*out = (unsigned)c.m->gi;
	LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t d, unsigned *out) {
	ANY(nvmlDeviceGetComputeInstanceId, d);
	if (!c.m || !out)
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	*out = (unsigned)c.m->ci;
	LEAVE(NVML_SUCCESS);
}

static nvmlReturn_t attributes(const struct call *c, nvmlDeviceAttributes_t *out) {
	if (!out)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!c->m)
		return NVML_ERROR_NOT_SUPPORTED;
	*out = (nvmlDeviceAttributes_t){
		.multiprocessorCount = c->m->profile.sms,
		.sharedCopyEngineCount = c->m->profile.copies,
		.sharedDecoderCount = c->m->profile.slices / 2,
		.gpuInstanceSliceCount = c->m->profile.slices,
		.computeInstanceSliceCount = c->m->slices,
		.memorySizeMB = c->m->profile.memory,
	};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t d, nvmlDeviceAttributes_t *out) {
	ANY(nvmlDeviceGetAttributes, d);
	LEAVE(attributes(&c, out));
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t d, nvmlDeviceAttributes_t *out) {
	ANY(nvmlDeviceGetAttributes_v2, d);
	LEAVE(attributes(&c, out));
}

// profile looks one up by NVML_GPU_INSTANCE_PROFILE_* or by its id.
static const struct profile *profile(const struct call *c, unsigned number, bool by_id) {
	for (int i = 0; i < c->g->profile_count; i++) {
		const struct profile *p = &c->g->profiles[i];
		if ((by_id ? p->id : p->number) == number)
			return p;
	}
	return NULL;
}

static void fill(nvmlGpuInstanceProfileInfo_t *out, const struct profile *p) {
	*out = (nvmlGpuInstanceProfileInfo_t){
		.id = p->id,
		.sliceCount = p->slices,
		.instanceCount = p->count,
		.multiprocessorCount = p->sms,
		.copyEngineCount = p->copies,
		.decoderCount = p->slices / 2,
		.memorySizeMB = p->memory,
	};
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t d, unsigned number, nvmlGpuInstanceProfileInfo_t *out) {
	GPU(nvmlDeviceGetGpuInstanceProfileInfo, d);
	if (!out || number >= NVML_GPU_INSTANCE_PROFILE_COUNT)
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	const struct profile *p = mig(&c) ? profile(&c, number, false) : NULL;
	if (!p)
		LEAVE(NVML_ERROR_NOT_SUPPORTED);
	fill(out, p);
	LEAVE(NVML_SUCCESS);
}

static nvmlReturn_t versioned(const struct profile *p, nvmlGpuInstanceProfileInfo_v2_t *out) {
	nvmlGpuInstanceProfileInfo_t v1;
	if (!p)
		return NVML_ERROR_NOT_SUPPORTED;
	fill(&v1, p);
	if (HAS_VERSION(out, nvmlGpuInstanceProfileInfo_v3)) {
		nvmlGpuInstanceProfileInfo_v3_t *v3 = (nvmlGpuInstanceProfileInfo_v3_t *)out;
		*v3 = (nvmlGpuInstanceProfileInfo_v3_t){
			.version = nvmlGpuInstanceProfileInfo_v3,
			.id = v1.id,
			.sliceCount = v1.sliceCount,
			.instanceCount = v1.instanceCount,
			.multiprocessorCount = v1.multiprocessorCount,
			.copyEngineCount = v1.copyEngineCount,
			.decoderCount = v1.decoderCount,
			.memorySizeMB = v1.memorySizeMB,
		};
		snprintf(v3->name, sizeof v3->name, "MIG %s", p->name);
		return NVML_SUCCESS;
	}
	if (!HAS_VERSION(out, nvmlGpuInstanceProfileInfo_v2))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	memcpy(&out->id, &v1.id, offsetof(nvmlGpuInstanceProfileInfo_t, memorySizeMB));
	out->memorySizeMB = v1.memorySizeMB;
	snprintf(out->name, sizeof out->name, "MIG %s", p->name);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t d, unsigned number, nvmlGpuInstanceProfileInfo_v2_t *out) {
	GPU(nvmlDeviceGetGpuInstanceProfileInfoV, d);
	LEAVE(out ? versioned(mig(&c) ? profile(&c, number, false) : NULL, out) : NVML_ERROR_INVALID_ARGUMENT);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoByIdV(nvmlDevice_t d, unsigned id, nvmlGpuInstanceProfileInfo_v2_t *out) {
	GPU(nvmlDeviceGetGpuInstanceProfileInfoByIdV, d);
	LEAVE(out ? versioned(mig(&c) ? profile(&c, id, true) : NULL, out) : NVML_ERROR_INVALID_ARGUMENT);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t d, unsigned id, unsigned *out) {
	GPU(nvmlDeviceGetGpuInstanceRemainingCapacity, d);
	const struct profile *p = mig(&c) ? profile(&c, id, true) : NULL;
	if (!p || !out)
		LEAVE(out ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT);
	unsigned slices = 7;
	for (int i = 0; i < c.g->instance_count; i++)
		if (c.g->instances[i].ci == 0)
			slices -= c.g->instances[i].profile.slices;
	*out = slices / p->slices;
	LEAVE(NVML_SUCCESS);
}

static nvmlGpuInstance_t instance_handle(int gpu, int gi) {
	struct nvmlGpuInstance_st *h = &gpu_instances[gpu][gi % 16];
	__atomic_store_n(&h->gpu, gpu, __ATOMIC_RELAXED);
	__atomic_store_n(&h->gi, gi, __ATOMIC_RELAXED);
	return h;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t d, unsigned id, nvmlGpuInstance_t *out) {
	GPU(nvmlDeviceGetGpuInstanceById, d);
	for (int i = 0; out && i < c.g->instance_count; i++)
		if (c.g->instances[i].gi == (int)id) {
			*out = instance_handle(c.g->number, (int)id);
			LEAVE(NVML_SUCCESS);
		}
	LEAVE(out ? NVML_ERROR_NOT_FOUND : NVML_ERROR_INVALID_ARGUMENT);
}

nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t d, unsigned id, nvmlGpuInstance_t *out, unsigned *count) {
	GPU(nvmlDeviceGetGpuInstances, d);
	if (!out || !count || !profile(&c, id, true))
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	*count = 0;
	for (int i = 0; i < c.g->instance_count; i++) // a GPU instance is where its first compute instance is
		if (c.g->instances[i].profile.id == id && c.g->instances[i].ci == 0)
			out[(*count)++] = instance_handle(c.g->number, c.g->instances[i].gi);
	LEAVE(NVML_SUCCESS);
}

// enter_instance is how calls begin whose handle is a GPU instance or a compute
// instance; ci is -1 for any.
static nvmlReturn_t enter_instance(struct call *c, enum function f, int gpu, int gi, int ci) {
	nvmlReturn_t r = enter_any(c, f, handle_of(gpu, -1, -1));
	if (r != NVML_SUCCESS)
		return r;
	for (int i = 0; i < c->g->instance_count; i++)
		if (c->g->instances[i].gi == gi && (ci < 0 || c->g->instances[i].ci == ci)) {
			c->m = &c->g->instances[i];
			return NVML_SUCCESS;
		}
	return leave(c, NVML_ERROR_INVALID_ARGUMENT);
}

static bool within(const void *p, const void *array, size_t size) {
	return (uintptr_t)p >= (uintptr_t)array && (uintptr_t)p < (uintptr_t)array + size;
}

static bool is_gpu_instance(nvmlGpuInstance_t h) { return within(h, gpu_instances, sizeof gpu_instances); }
static bool is_compute_instance(nvmlComputeInstance_t h) { return within(h, compute_instances, sizeof compute_instances); }

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t h, nvmlGpuInstanceInfo_t *out) {
	struct call c;
	if (!out || !is_gpu_instance(h))
		return NVML_ERROR_INVALID_ARGUMENT;
	nvmlReturn_t r = enter_instance(&c, FN_nvmlGpuInstanceGetInfo, h->gpu, h->gi, -1);
	if (r != NVML_SUCCESS)
		return r;
	*out = (nvmlGpuInstanceInfo_t){handle_of(h->gpu, -1, -1), (unsigned)h->gi, c.m->profile.id, {0, c.m->profile.slices}};
	LEAVE(NVML_SUCCESS);
}

static nvmlComputeInstance_t compute_handle(int gpu, int gi, int ci) {
	struct nvmlComputeInstance_st *h = &compute_instances[gpu][gi % 16][ci % 16];
	__atomic_store_n(&h->gpu, gpu, __ATOMIC_RELAXED);
	__atomic_store_n(&h->gi, gi, __ATOMIC_RELAXED);
	__atomic_store_n(&h->ci, ci, __ATOMIC_RELAXED);
	return h;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t h, unsigned id, nvmlComputeInstance_t *out) {
	struct call c;
	if (!out || !is_gpu_instance(h))
		return NVML_ERROR_INVALID_ARGUMENT;
	nvmlReturn_t r = enter_instance(&c, FN_nvmlGpuInstanceGetComputeInstanceById, h->gpu, h->gi, (int)id);
	if (r != NVML_SUCCESS)
		return r == NVML_ERROR_INVALID_ARGUMENT ? NVML_ERROR_NOT_FOUND : r;
	*out = compute_handle(h->gpu, h->gi, (int)id);
	LEAVE(NVML_SUCCESS);
}

// The ids of compute instance profiles are their enumeration's here.
static unsigned compute_profile(const struct instance *m) { return m->slices == 7 ? 4 : m->slices - 1; }

static nvmlReturn_t compute_info(enum function f, nvmlComputeInstance_t h, nvmlComputeInstanceInfo_t *out, bool placed) {
	struct call c;
	if (!out || !is_compute_instance(h))
		return NVML_ERROR_INVALID_ARGUMENT;
	nvmlReturn_t r = enter_instance(&c, f, h->gpu, h->gi, h->ci);
	if (r != NVML_SUCCESS)
		return r;
	out->device = handle_of(h->gpu, -1, -1);
	out->gpuInstance = instance_handle(h->gpu, h->gi);
	out->id = (unsigned)h->ci;
	out->profileId = compute_profile(c.m);
	if (placed)
		out->placement = (nvmlComputeInstancePlacement_t){0, c.m->slices};
	LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t h, unsigned id, nvmlComputeInstance_t *out, unsigned *count) {
	struct call c;
	if (!out || !count || !is_gpu_instance(h))
		return NVML_ERROR_INVALID_ARGUMENT;
	nvmlReturn_t r = enter_instance(&c, FN_nvmlGpuInstanceGetComputeInstances, h->gpu, h->gi, -1);
	if (r != NVML_SUCCESS)
		return r;
	*count = 0;
	for (int i = 0; i < c.g->instance_count; i++) {
		const struct instance *m = &c.g->instances[i];
		if (m->gi == h->gi && compute_profile(m) == id)
			out[(*count)++] = compute_handle(h->gpu, h->gi, m->ci);
	}
	LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlComputeInstanceGetInfo(nvmlComputeInstance_t h, nvmlComputeInstanceInfo_t *out) {
	return compute_info(FN_nvmlComputeInstanceGetInfo, h, out, false);
}

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t h, nvmlComputeInstanceInfo_t *out) {
	return compute_info(FN_nvmlComputeInstanceGetInfo_v2, h, out, true);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t h, unsigned number, unsigned engine, nvmlComputeInstanceProfileInfo_t *out) {
	static const unsigned slices[] = {1, 2, 3, 4, 7, 8, 6, 1};
	struct call c;
	if (!out || !is_gpu_instance(h) || number >= sizeof slices / sizeof *slices || engine != 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	nvmlReturn_t r = enter_instance(&c, FN_nvmlGpuInstanceGetComputeInstanceProfileInfo, h->gpu, h->gi, -1);
	if (r != NVML_SUCCESS)
		return r;
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
