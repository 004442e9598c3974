// Device handles by index, and the identity of devices.
#include "fake.h"

#include <stdio.h>
#include <string.h>

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *out) {
	SYSTEM(nvmlDeviceGetCount_v2);
	if (!out)
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	*out = 0;
	for (int g = 0; g < c.s->gpu_count; g++)
		*out += !c.s->gpus[g].absent;
	LEAVE(NVML_SUCCESS);
}

// Creating a handle attaches the GPU, which may fail like any call.
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *out) {
	SYSTEM(nvmlDeviceGetHandleByIndex_v2);
	for (int g = 0; out && g < c.s->gpu_count; g++)
		if (!c.s->gpus[g].absent && index-- == 0) {
			nvmlDevice_t found = handle_of(g, -1, -1);
			nvmlReturn_t r = enter_again(&c, found);
			if (r != NVML_SUCCESS)
				return r;
			*out = found;
			LEAVE(NVML_SUCCESS);
		}
	LEAVE(NVML_ERROR_INVALID_ARGUMENT);
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

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *out) {
	GPU(nvmlDeviceGetPciInfo_v3, d);
	if (!out)
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	nvmlReturn_t r;
	memset(out, 0, sizeof *out);
	if ((r = get_uint(&c, K_PCI_DOMAIN, &out->domain)) || (r = get_uint(&c, K_PCI_BUS, &out->bus)) || (r = get_uint(&c, K_PCI_DEVICE, &out->device)))
		LEAVE(r);
	get_uint(&c, K_PCI_ID, &out->pciDeviceId);
	get_uint(&c, K_PCI_SUBSYSTEM, &out->pciSubSystemId);
	snprintf(out->busId, sizeof out->busId, NVML_DEVICE_PCI_BUS_ID_FMT, out->domain, out->bus, out->device);
	snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "%04X:%02X:%02X.0", out->domain & 0xffff, out->bus & 0xff, out->device & 0xff);
	LEAVE(NVML_SUCCESS);
}
