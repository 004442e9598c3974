// vGPU: a host's guests and a guest's licences.
#include "fake.h"

nvmlReturn_t nvmlDeviceGetActiveVgpus(nvmlDevice_t d, unsigned *count, nvmlVgpuInstance_t *out) {
	GPU(nvmlDeviceGetActiveVgpus, d);
	unsigned mode, have = (unsigned)c.g->vgpu_count;
	nvmlReturn_t r = count ? get_uint(&c, K_VGPU_HOST_MODE, &mode) : NVML_ERROR_INVALID_ARGUMENT;
	if (r != NVML_SUCCESS)
		LEAVE(r);
	bool fits = have <= *count && (out || have == 0);
	for (unsigned i = 0; fits && i < have; i++)
		out[i] = c.g->vgpus[i].id;
	*count = have;
	LEAVE(fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE);
}

// guest finds a vGPU on any GPU. Its handle is its number.
static const struct vgpu *guest(const struct call *c, nvmlVgpuInstance_t id) {
	for (int g = 0; g < c->s->gpu_count; g++)
		for (int i = 0; i < c->s->gpus[g].vgpu_count; i++)
			if (c->s->gpus[g].vgpus[i].id == id)
				return &c->s->gpus[g].vgpus[i];
	return NULL;
}

#define GUEST(f, id)                                                                                                           \
	SYSTEM(f);                                                                                                              \
	const struct vgpu *v = guest(&c, id);                                                                                   \
	if (!v)                                                                                                                 \
	LEAVE(NVML_ERROR_NOT_FOUND)

nvmlReturn_t nvmlVgpuInstanceGetUUID(nvmlVgpuInstance_t id, char *out, unsigned size) {
	GUEST(nvmlVgpuInstanceGetUUID, id);
	LEAVE(put_text(v->uuid, out, size));
}

#define NUMBER_OF(f, type, member)                                                                                             \
	nvmlReturn_t f(nvmlVgpuInstance_t id, type *out) {                                                                      \
		GUEST(f, id);                                                                                                   \
		*out = v->member;                                                                                               \
		LEAVE(NVML_SUCCESS);                                                                                            \
	}
NUMBER_OF(nvmlVgpuInstanceGetType, nvmlVgpuTypeId_t, type_id)
NUMBER_OF(nvmlVgpuInstanceGetFbUsage, unsigned long long, memory)
NUMBER_OF(nvmlVgpuInstanceGetLicenseStatus, unsigned, licensed)

nvmlReturn_t nvmlVgpuInstanceGetLicenseInfo_v2(nvmlVgpuInstance_t id, nvmlVgpuLicenseInfo_t *out) {
	GUEST(nvmlVgpuInstanceGetLicenseInfo_v2, id);
	*out = (nvmlVgpuLicenseInfo_t){.isLicensed = (unsigned char)v->licensed, .currentState = NVML_GRID_LICENSE_STATE_LICENSED};
	out->licenseExpiry.status = NVML_GRID_LICENSE_EXPIRY_PERMANENT;
	LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t d, nvmlGridLicensableFeatures_t *out) {
	unsigned v;
	GPU(nvmlDeviceGetGridLicensableFeatures_v4, d);
	nvmlReturn_t r = out ? get_uint(&c, K_GRID_SUPPORTED, &v) : NVML_ERROR_INVALID_ARGUMENT;
	if (r != NVML_SUCCESS)
		LEAVE(r);
	*out = (nvmlGridLicensableFeatures_t){.isGridLicenseSupported = (int)v, .licensableFeaturesCount = 1};
	nvmlGridLicensableFeature_t *f = &out->gridLicensableFeatures[0];
	f->featureCode = NVML_GRID_LICENSE_FEATURE_CODE_VGPU;
	get_uint(&c, K_GRID_LICENSED, &f->featureState);
	f->licenseExpiry.status = NVML_GRID_LICENSE_EXPIRY_PERMANENT;
	LEAVE(NVML_SUCCESS);
}
