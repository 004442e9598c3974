// NVLink, the fabric, and the relation between two GPUs.
#include "fake.h"

#include <stdio.h>
#include <string.h>

static nvmlReturn_t link_uint(const struct call *c, int key, unsigned link, unsigned *out) {
	unsigned count;
	nvmlReturn_t r = get_uint(c, K_NVLINK_COUNT, &count);
	if (r != NVML_SUCCESS)
		return r;
	return link < count && link < MAX_LINKS ? get_uint(c, key + (int)link, out) : NVML_ERROR_INVALID_ARGUMENT;
}

int read_link(enum function f, void *device, int first, unsigned link, unsigned *out); // for generated.c
int read_link(enum function f, void *device, int first, unsigned link, unsigned *out) {
	struct call c;
	nvmlReturn_t r = enter_gpu(&c, f, device);
	return r == NVML_SUCCESS ? leave(&c, link_uint(&c, first, link, out)) : r;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t d, unsigned link, nvmlPciInfo_t *out) {
	GPU(nvmlDeviceGetNvLinkRemotePciInfo_v2, d);
	unsigned bus = 0;
	nvmlReturn_t r = out ? link_uint(&c, K_NVLINK_REMOTE_BUS, link, &bus) : NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS) {
		*out = (nvmlPciInfo_t){.bus = bus};
		snprintf(out->busId, sizeof out->busId, NVML_DEVICE_PCI_BUS_ID_FMT, 0u, bus, 0u);
		snprintf(out->busIdLegacy, sizeof out->busIdLegacy, NVML_DEVICE_PCI_BUS_ID_LEGACY_FMT, 0u, bus & 0xff, 0u);
	}
	LEAVE(r);
}

nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t d, unsigned link, nvmlNvLinkErrorCounter_t counter, unsigned long long *out) {
	static const int keys[] = {K_NVLINK_REPLAY, K_NVLINK_RECOVERY, K_NVLINK_CRC_FLIT, K_NVLINK_CRC_DATA, K_NVLINK_ECC_DATA};
	unsigned v;
	GPU(nvmlDeviceGetNvLinkErrorCounter, d);
	nvmlReturn_t r = out && (unsigned)counter < 5 ? link_uint(&c, keys[counter], link, &v) : NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*out = v;
	LEAVE(r);
}

// fabric fills the members that all versions of the struct have, at different offsets.
static nvmlReturn_t fabric(const struct call *c, unsigned char uuid[NVML_GPU_FABRIC_UUID_LEN], unsigned *status, unsigned *clique, unsigned *state) {
	char text[64];
	*state = *status = *clique = 0;
	nvmlReturn_t r = get_uint(c, K_FABRIC_STATE, state);
	get_uint(c, K_FABRIC_STATUS, status);
	get_uint(c, K_FABRIC_CLIQUE, clique);
	memset(uuid, 0, NVML_GPU_FABRIC_UUID_LEN);
	if (get_text(c, K_FABRIC_CLUSTER, text, sizeof text) == NVML_SUCCESS) // hexadecimal digits
		for (int i = 0; i < NVML_GPU_FABRIC_UUID_LEN; i++)
			sscanf(text + 2 * i, "%2hhx", &uuid[i]);
	return r;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t d, nvmlGpuFabricInfo_t *out) {
	GPU(nvmlDeviceGetGpuFabricInfo, d);
	unsigned status, state;
	nvmlReturn_t r = fabric(&c, out->clusterUuid, &status, &out->cliqueId, &state);
	out->status = (nvmlReturn_t)status;
	out->state = (nvmlGpuFabricState_t)state;
	LEAVE(r);
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t d, nvmlGpuFabricInfoV_t *out) {
	unsigned status, state, v = 0;
	GPU(nvmlDeviceGetGpuFabricInfoV, d);
	if (!HAS_VERSION(out, nvmlGpuFabricInfo_v2) && !HAS_VERSION(out, nvmlGpuFabricInfo_v3))
		LEAVE(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	nvmlReturn_t r = fabric(&c, out->clusterUuid, &status, &out->cliqueId, &state);
	out->status = (nvmlReturn_t)status;
	out->state = (nvmlGpuFabricState_t)state;
	out->healthMask = 0;
	get_uint(&c, K_FABRIC_HEALTH, &out->healthMask);
	if (HAS_VERSION(out, nvmlGpuFabricInfo_v3)) {
		get_uint(&c, K_FABRIC_SUMMARY, &v);
		out->healthSummary = (unsigned char)v;
	}
	LEAVE(r);
}

// other looks up a call's second device.
static bool other(const struct call *c, nvmlDevice_t d) {
	return is_handle(d) && d->gi < 0 && d->gpu < c->s->gpu_count && !c->s->gpus[d->gpu].absent;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t d, nvmlDevice_t e, nvmlGpuP2PCapsIndex_t what, nvmlGpuP2PStatus_t *out) {
	GPU(nvmlDeviceGetP2PStatus, d);
	if (!out || (unsigned)what >= 8 || !other(&c, e) || d == e)
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	LEAVE(get_uint(&c, K_P2P + e->gpu, (unsigned *)out));
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t d, nvmlDevice_t e, nvmlGpuTopologyLevel_t *out) {
	GPU(nvmlDeviceGetTopologyCommonAncestor, d);
	LEAVE(other(&c, e) ? get_uint(&c, K_TOPOLOGY, (unsigned *)out) : NVML_ERROR_INVALID_ARGUMENT);
}
