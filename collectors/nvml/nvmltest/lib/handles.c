// Devices by index, UUID, bus id, serial number, and what they are.
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static nvmlReturn_t count(struct call *c, unsigned *out) {
	if (!out)
		return leave(c, NVML_ERROR_INVALID_ARGUMENT);
	*out = 0;
	for (int g = 0; g < c->s->gpu_count; g++)
		*out += !c->s->gpus[g].absent;
	return leave(c, NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetCount(unsigned *out) {
	SYSTEM(nvmlDeviceGetCount);
	return count(&c, out);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *out) {
	SYSTEM(nvmlDeviceGetCount_v2);
	return count(&c, out);
}

// give hands a handle out, which attaches the GPU: that may fail as any call may.
static nvmlReturn_t give(struct call *c, nvmlDevice_t found, nvmlDevice_t *out) {
	nvmlReturn_t r = enter_again(c, found);
	if (r != NVML_SUCCESS)
		return r;
	*out = found;
	return leave(c, NVML_SUCCESS);
}

static nvmlReturn_t by_index(struct call *c, unsigned index, nvmlDevice_t *out) {
	for (int g = 0; out && g < c->s->gpu_count; g++)
		if (!c->s->gpus[g].absent && index-- == 0)
			return give(c, handle_of(g, -1, -1), out);
	return leave(c, NVML_ERROR_INVALID_ARGUMENT);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *out) {
	SYSTEM(nvmlDeviceGetHandleByIndex);
	return by_index(&c, index, out);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *out) {
	SYSTEM(nvmlDeviceGetHandleByIndex_v2);
	return by_index(&c, index, out);
}

static bool is_text(const struct gpu *g, int key, const char *text) {
	return g->cells[key].kind == STRING && strcmp(g->cells[key].text, text) == 0;
}

static nvmlReturn_t by_uuid(struct call *c, const char *uuid, nvmlDevice_t *out) {
	for (int g = 0; uuid && out && g < c->s->gpu_count; g++) {
		const struct gpu *gpu = &c->s->gpus[g];
		if (gpu->absent)
			continue;
		if (is_text(gpu, K_UUID, uuid))
			return give(c, handle_of(g, -1, -1), out);
		for (int i = 0; i < gpu->instance_count; i++)
			if (strcmp(gpu->instances[i].uuid, uuid) == 0)
				return give(c, handle_of(g, gpu->instances[i].gi, gpu->instances[i].ci), out);
	}
	return leave(c, uuid && out ? NVML_ERROR_NOT_FOUND : NVML_ERROR_INVALID_ARGUMENT);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out) {
	SYSTEM(nvmlDeviceGetHandleByUUID);
	return by_uuid(&c, uuid, out);
}

nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *uuid, nvmlDevice_t *out) {
	SYSTEM(nvmlDeviceGetHandleByUUIDV);
	if (!uuid || !HAS_VERSION(uuid, nvmlUUID_v1))
		LEAVE(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	return by_uuid(&c, uuid->value.str, out);
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *out) {
	SYSTEM(nvmlDeviceGetHandleBySerial);
	for (int g = 0; serial && out && g < c.s->gpu_count; g++)
		if (!c.s->gpus[g].absent && is_text(&c.s->gpus[g], K_SERIAL, serial))
			return give(&c, handle_of(g, -1, -1), out);
	LEAVE(serial && out ? NVML_ERROR_NOT_FOUND : NVML_ERROR_INVALID_ARGUMENT);
}

static unsigned constant(const struct gpu *g, int key) {
	return g->cells[key].kind == CONSTANT ? (unsigned)g->cells[key].number : 0;
}

// by_pci takes "0000:1b:00.0", "00000000:1B:00.0" and "1b:00.0".
static nvmlReturn_t by_pci(struct call *c, const char *id, nvmlDevice_t *out) {
	unsigned domain = 0, bus, device;
	if (!id || !out || (sscanf(id, "%x:%x:%x", &domain, &bus, &device) != 3 && (domain = 0, sscanf(id, "%x:%x", &bus, &device) != 2)))
		return leave(c, NVML_ERROR_INVALID_ARGUMENT);
	for (int g = 0; g < c->s->gpu_count; g++) {
		const struct gpu *gpu = &c->s->gpus[g];
		if (!gpu->absent && constant(gpu, K_PCI_DOMAIN) == domain && constant(gpu, K_PCI_BUS) == bus && constant(gpu, K_PCI_DEVICE) == device)
			return give(c, handle_of(g, -1, -1), out);
	}
	return leave(c, NVML_ERROR_NOT_FOUND);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *id, nvmlDevice_t *out) {
	SYSTEM(nvmlDeviceGetHandleByPciBusId);
	return by_pci(&c, id, out);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *out) {
	SYSTEM(nvmlDeviceGetHandleByPciBusId_v2);
	return by_pci(&c, id, out);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t d, unsigned *out) {
	GPU(nvmlDeviceGetIndex, d);
	if (!out)
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	*out = 0;
	for (int g = 0; g < c.g->number; g++)
		*out += !c.s->gpus[g].absent;
	LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *out, unsigned length) {
	char name[256], full[400];
	ANY(nvmlDeviceGetName, d);
	if (!c.m)
		LEAVE(get_text(&c, K_NAME, out, length));
	nvmlReturn_t r = get_text(&c, K_NAME, name, sizeof name);
	if (r != NVML_SUCCESS)
		LEAVE(r);
	snprintf(full, sizeof full, "%s MIG %s", name, c.m->profile.name);
	LEAVE(put_text(full, out, length));
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *out, unsigned length) {
	ANY(nvmlDeviceGetUUID, d);
	LEAVE(c.m ? put_text(c.m->uuid, out, length) : get_text(&c, K_UUID, out, length));
}

#define TEXT_OF(f, key)                                                                                                        \
	nvmlReturn_t f(nvmlDevice_t d, char *out, unsigned length) {                                                            \
		GPU(f, d);                                                                                                      \
		LEAVE(get_text(&c, key, out, length));                                                                          \
	}
TEXT_OF(nvmlDeviceGetSerial, K_SERIAL)
TEXT_OF(nvmlDeviceGetBoardPartNumber, K_BOARD_PART)
TEXT_OF(nvmlDeviceGetVbiosVersion, K_VBIOS)
TEXT_OF(nvmlDeviceGetInforomImageVersion, K_INFOROM_IMAGE)

nvmlReturn_t nvmlDeviceGetInforomVersion(nvmlDevice_t d, nvmlInforomObject_t object, char *out, unsigned length) {
	GPU(nvmlDeviceGetInforomVersion, d);
	if ((unsigned)object > 4)
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	LEAVE(get_text(&c, K_INFOROM + (int)object, out, length));
}

nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t d, char *out) {
	GPU(nvmlDeviceGetGspFirmwareVersion, d);
	LEAVE(get_text(&c, K_GSP_VERSION, out, NVML_GSP_FIRMWARE_VERSION_BUF_SIZE));
}

static nvmlReturn_t pci(const struct call *c, nvmlPciInfo_t *out) {
	nvmlReturn_t r;
	if (!out)
		return NVML_ERROR_INVALID_ARGUMENT;
	memset(out, 0, sizeof *out);
	if ((r = get_uint(c, K_PCI_DOMAIN, &out->domain)) || (r = get_uint(c, K_PCI_BUS, &out->bus)) || (r = get_uint(c, K_PCI_DEVICE, &out->device)))
		return r;
	get_uint(c, K_PCI_ID, &out->pciDeviceId);
	get_uint(c, K_PCI_SUBSYSTEM, &out->pciSubSystemId);
	snprintf(out->busId, sizeof out->busId, NVML_DEVICE_PCI_BUS_ID_FMT, out->domain, out->bus, out->device);
	snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "%04X:%02X:%02X.0", out->domain & 0xffff, out->bus & 0xff, out->device & 0xff);
	return NVML_SUCCESS;
}

#define PCI_OF(f)                                                                                                              \
	nvmlReturn_t f(nvmlDevice_t d, nvmlPciInfo_t *out) {                                                                    \
		GPU(f, d);                                                                                                      \
		LEAVE(pci(&c, out));                                                                                            \
	}
PCI_OF(nvmlDeviceGetPciInfo_v2)
PCI_OF(nvmlDeviceGetPciInfo_v3)

// The first version's struct ends before subsystem and the long bus id.
nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t d, nvmlPciInfo_t *out) {
	nvmlPciInfo_t whole;
	GPU(nvmlDeviceGetPciInfo, d);
	nvmlReturn_t r = pci(&c, &whole);
	if (r == NVML_SUCCESS && out)
		memcpy(out, &whole, offsetof(nvmlPciInfo_t, pciSubSystemId));
	LEAVE(out ? r : NVML_ERROR_INVALID_ARGUMENT);
}

nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t d, nvmlPciInfoExt_t *out) {
	nvmlPciInfo_t p;
	GPU(nvmlDeviceGetPciInfoExt, d);
	if (!out || !HAS_VERSION(out, nvmlPciInfoExt_v1))
		LEAVE(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	nvmlReturn_t r = pci(&c, &p);
	if (r == NVML_SUCCESS) {
		out->domain = p.domain;
		out->bus = p.bus;
		out->device = p.device;
		out->pciDeviceId = p.pciDeviceId;
		out->pciSubSystemId = p.pciSubSystemId;
		out->baseClass = 3;
		out->subClass = 2;
		strcpy(out->busId, p.busId);
	}
	LEAVE(r);
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t d, int *major, int *minor) {
	ANY(nvmlDeviceGetCudaComputeCapability, d);
	nvmlReturn_t r = get_int(&c, K_CC_MAJOR, major);
	LEAVE(r == NVML_SUCCESS ? get_int(&c, K_CC_MINOR, minor) : r);
}
