//go:build linux && cgo

#include "answers.h"
#include "handle.h"

#include <stddef.h>
#include <string.h>

typedef void *device;
typedef int (*handle_fn)(unsigned int, device *);
typedef int (*mig_handle_fn)(device, unsigned int, device *);
typedef int (*uint_fn)(device, unsigned int *);
typedef int (*pair_fn)(device, unsigned int *, unsigned int *);
typedef int (*text_fn)(device, char *, unsigned int);

_Static_assert(sizeof(device) == sizeof(uintptr_t), "nvmlDevice_t");

enum { UUID_SIZE = 96 }; // NVML_DEVICE_UUID_V2_BUFFER_SIZE

struct wg_handle wg_handle_by_index(void *f, unsigned int index)
{
	device d = NULL;
	int code = ((handle_fn)f)(index, &d);
	return (struct wg_handle){(uintptr_t)d, code};
}

struct wg_handle wg_mig_by_index(void *f, uintptr_t gpu, unsigned int index)
{
	device d = NULL;
	int code = ((mig_handle_fn)f)((device)gpu, index, &d);
	return (struct wg_handle){(uintptr_t)d, code};
}

struct platform {
	unsigned int version;
	unsigned char guid[16], serial[16];
	unsigned char slot, tray, host, peer, module;
};
_Static_assert(sizeof(struct platform) == 44, "nvmlPlatformInfo_v2_t");

struct wg_platform_info wg_platform(void *f, uintptr_t gpu)
{
	struct platform p = {.version = (unsigned int)sizeof p | 2u << 24};
	struct wg_platform_info out = {0};
	out.code = ((int (*)(device, struct platform *))f)((device)gpu, &p);
	if (out.code == WG_SUCCESS) {
		memcpy(&out.guid, p.guid, sizeof out.guid);
		memcpy(out.serial, p.serial, sizeof p.serial);
	}
	return out;
}

// FNV-1a, 64 bits.
static uint64_t mix(uint64_t h, const void *data, size_t size)
{
	for (const unsigned char *p = data; size > 0; size--)
		h = (h ^ *p++) * 0x100000001b3;
	return h;
}

uint64_t wg_mig_layout(void *mode, void *count, void *by_index, void *uuid, uintptr_t gpu)
{
	uint64_t h = 0xcbf29ce484222325;
	unsigned int current = 0, pending = 0, most = 0;
	switch (((pair_fn)mode)((device)gpu, &current, &pending)) {
	case WG_SUCCESS:
		break;
	case WG_NOT_SUPPORTED:
		return h;
	default:
		return 0;
	}
	h = mix(h, &current, sizeof current);
	if (current == 0)
		return h;
	if (((uint_fn)count)((device)gpu, &most) != WG_SUCCESS)
		return 0;
	for (unsigned int i = 0; i < most; i++) {
		struct wg_handle mig = wg_mig_by_index(by_index, gpu, i);
		if (mig.code == WG_NOT_FOUND || mig.code == WG_INVALID_ARGUMENT)
			continue;
		char text[UUID_SIZE] = {0};
		if (mig.code != WG_SUCCESS || ((text_fn)uuid)((device)mig.handle, text, sizeof text) != WG_SUCCESS)
			return 0;
		h = mix(h, &i, sizeof i);
		h = mix(h, text, sizeof text);
	}
	return h;
}
