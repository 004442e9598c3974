// NVLink, the fabric, and what a GPU is to another.
#include "fake.h"

#include <stdio.h>
#include <string.h>

static nvmlReturn_t link_uint(const struct call *c, int key, unsigned link, unsigned *out) {
	unsigned count;
	nvmlReturn_t r = get_uint(c, K_NVLINK_COUNT, &count);
	if (r != NVML_SUCCESS)
		return r;
	return link < count && link < 18 ? get_uint(c, key + (int)link, out) : NVML_ERROR_INVALID_ARGUMENT;
}

#define LINK_OF(f, type, key)                                                                                                  \
	nvmlReturn_t f(nvmlDevice_t d, unsigned link, type *out) {                                                              \
		GPU(f, d);                                                                                                      \
		LEAVE(link_uint(&c, key, link, (unsigned *)out));                                                               \
	}
LINK_OF(nvmlDeviceGetNvLinkState, nvmlEnableState_t, K_NVLINK_STATE)
LINK_OF(nvmlDeviceGetNvLinkVersion, unsigned, K_NVLINK_VERSION)
LINK_OF(nvmlDeviceGetNvLinkRemoteDeviceType, nvmlIntNvLinkDeviceType_t, K_NVLINK_REMOTE_TYPE)

nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t d, unsigned link, nvmlNvLinkCapability_t capability, unsigned *out) {
	GPU(nvmlDeviceGetNvLinkCapability, d);
	unsigned state;
	nvmlReturn_t r = link_uint(&c, K_NVLINK_STATE, link, &state);
	if (r == NVML_SUCCESS)
		r = (unsigned)capability < 6 ? get_uint(&c, K_NVLINK_CAPABILITY + (int)capability, out) : NVML_ERROR_INVALID_ARGUMENT;
	LEAVE(r);
}

static nvmlReturn_t remote(const struct call *c, unsigned link, nvmlPciInfo_t *out) {
	unsigned bus = 0;
	nvmlReturn_t r = out ? link_uint(c, K_NVLINK_REMOTE_BUS, link, &bus) : NVML_ERROR_INVALID_ARGUMENT;
	if (r != NVML_SUCCESS)
		return r;
	memset(out, 0, sizeof *out);
	out->bus = bus;
	snprintf(out->busId, sizeof out->busId, NVML_DEVICE_PCI_BUS_ID_FMT, 0u, bus, 0u);
	snprintf(out->busIdLegacy, sizeof out->busIdLegacy, NVML_DEVICE_PCI_BUS_ID_LEGACY_FMT, 0u, bus & 0xff, 0u);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t d, unsigned link, nvmlPciInfo_t *out) {
	GPU(nvmlDeviceGetNvLinkRemotePciInfo, d);
	LEAVE(remote(&c, link, out));
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t d, unsigned link, nvmlPciInfo_t *out) {
	GPU(nvmlDeviceGetNvLinkRemotePciInfo_v2, d);
	LEAVE(remote(&c, link, out));
}

nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t d, unsigned link, nvmlNvLinkErrorCounter_t counter, unsigned long long *out) {
	static const int keys[] = {K_NVLINK_REPLAY, K_NVLINK_RECOVERY, K_NVLINK_CRC_FLIT, K_NVLINK_CRC_DATA, K_NVLINK_ECC_DATA};
	unsigned v;
	GPU(nvmlDeviceGetNvLinkErrorCounter, d);
	if (!out || (unsigned)counter >= 5)
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	nvmlReturn_t r = link_uint(&c, keys[counter], link, &v);
	if (r == NVML_SUCCESS)
		*out = v;
	LEAVE(r);
}

nvmlReturn_t nvmlDeviceGetNvLinkUtilizationCounter(nvmlDevice_t d, unsigned link, unsigned counter, unsigned long long *rx, unsigned long long *tx) {
	unsigned state;
	GPU(nvmlDeviceGetNvLinkUtilizationCounter, d);
	nvmlReturn_t r = counter > 1 ? NVML_ERROR_INVALID_ARGUMENT : link_uint(&c, K_NVLINK_STATE, link, &state);
	if (r == NVML_SUCCESS)
		r = get_ull(&c, K_NVLINK_RX + (int)link, rx);
	LEAVE(r == NVML_SUCCESS ? get_ull(&c, K_NVLINK_TX + (int)link, tx) : r);
}

// cluster turns 32 hexadecimal digits into bytes.
static void cluster(const struct call *c, unsigned char out[NVML_GPU_FABRIC_UUID_LEN]) {
	char text[64];
	memset(out, 0, NVML_GPU_FABRIC_UUID_LEN);
	if (get_text(c, K_FABRIC_CLUSTER, text, sizeof text) != NVML_SUCCESS || strlen(text) != 2 * NVML_GPU_FABRIC_UUID_LEN)
		return;
	for (int i = 0; i < NVML_GPU_FABRIC_UUID_LEN; i++) {
		unsigned byte = 0;
		sscanf(text + 2 * i, "%2x", &byte);
		out[i] = (unsigned char)byte;
	}
}

// The versions of the struct differ in what follows the state.
static nvmlReturn_t fabric(const struct call *c, nvmlGpuFabricInfo_t *out) {
	unsigned v = 0;
	nvmlReturn_t r = get_uint(c, K_FABRIC_STATE, &v);
	if (r != NVML_SUCCESS)
		return r;
	memset(out, 0, sizeof *out);
	out->state = (nvmlGpuFabricState_t)v;
	cluster(c, out->clusterUuid);
	v = 0;
	get_uint(c, K_FABRIC_STATUS, &v);
	out->status = (nvmlReturn_t)v;
	get_uint(c, K_FABRIC_CLIQUE, &out->cliqueId);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t d, nvmlGpuFabricInfo_t *out) {
	GPU(nvmlDeviceGetGpuFabricInfo, d);
	LEAVE(out ? fabric(&c, out) : NVML_ERROR_INVALID_ARGUMENT);
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t d, nvmlGpuFabricInfoV_t *out) {
	nvmlGpuFabricInfo_t info;
	unsigned v = 0;
	GPU(nvmlDeviceGetGpuFabricInfoV, d);
	if (!out || !(HAS_VERSION(out, nvmlGpuFabricInfo_v2) || HAS_VERSION(out, nvmlGpuFabricInfo_v3)))
		LEAVE(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	nvmlReturn_t r = fabric(&c, &info);
	if (r != NVML_SUCCESS)
		LEAVE(r);
	memcpy(out->clusterUuid, info.clusterUuid, sizeof out->clusterUuid);
	out->status = info.status;
	out->cliqueId = info.cliqueId;
	out->state = info.state;
	out->healthMask = 0;
	get_uint(&c, K_FABRIC_HEALTH, &out->healthMask);
	if (HAS_VERSION(out, nvmlGpuFabricInfo_v3)) {
		get_uint(&c, K_FABRIC_SUMMARY, &v);
		out->healthSummary = (unsigned char)v;
	}
	LEAVE(NVML_SUCCESS);
}

// other looks the second device of a call up.
static const struct gpu *other(const struct call *c, nvmlDevice_t d) {
	if (!is_handle(d) || d->gi >= 0 || d->gpu >= c->s->gpu_count || c->s->gpus[d->gpu].absent)
		return NULL;
	return &c->s->gpus[d->gpu];
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t d, nvmlDevice_t e, nvmlGpuP2PCapsIndex_t what, nvmlGpuP2PStatus_t *out) {
	GPU(nvmlDeviceGetP2PStatus, d);
	if (!out || (unsigned)what >= 8 || !other(&c, e) || d == e)
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	for (int i = c.s->peer_count - 1; i >= 0; i--) { // the last that was said
		const struct peer *p = &c.s->peers[i];
		if (p->from == d->gpu && p->to == e->gpu && p->index == (int)what) {
			*out = (nvmlGpuP2PStatus_t)p->status;
			LEAVE(NVML_SUCCESS);
		}
	}
	LEAVE(get_uint(&c, K_P2P + (int)what, (unsigned *)out));
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t d, nvmlDevice_t e, nvmlGpuTopologyLevel_t *out) {
	GPU(nvmlDeviceGetTopologyCommonAncestor, d);
	if (!out || !other(&c, e))
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	LEAVE(get_uint(&c, K_TOPOLOGY, (unsigned *)out));
}

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t d, nvmlDevice_t e, int *out) {
	GPU(nvmlDeviceOnSameBoard, d);
	if (!out || !other(&c, e))
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	*out = d == e;
	LEAVE(NVML_SUCCESS);
}
