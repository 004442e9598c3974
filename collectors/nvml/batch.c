//go:build linux && cgo

#include "answers.h"
#include "batch.h"

#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct nvml_device *device;

// Version word of NVML's versioned structs: size | version << 24.
#define VERSION_OF(type, n) ((unsigned int)sizeof(type) | (unsigned int)(n) << 24)

struct utilization {
	unsigned int gpu, memory;
};
_Static_assert(sizeof(struct utilization) == 8, "nvmlUtilization_t");

struct memory {
	unsigned long long total, free, used;
};
_Static_assert(sizeof(struct memory) == 24, "nvmlMemory_t");

struct memory_v2 {
	unsigned int version;
	unsigned long long total, reserved, free, used;
};
_Static_assert(sizeof(struct memory_v2) == 40, "nvmlMemory_v2_t");

struct margin {
	unsigned int version;
	int degrees;
};
_Static_assert(sizeof(struct margin) == 8, "nvmlMarginTemperature_v1_t");

struct sram {
	unsigned int version;
	unsigned long long counts[11];
	unsigned int exceeded;
};
_Static_assert(sizeof(struct sram) == 104, "nvmlEccSramErrorStatus_v1_t");

struct histogram {
	unsigned int max, high, partial, low, none;
};
_Static_assert(sizeof(struct histogram) == 20, "nvmlRowRemapperHistogramValues_t");

struct fabric {
	unsigned char cluster[16];
	int status;
	unsigned int clique;
	unsigned char state;
};
_Static_assert(sizeof(struct fabric) == 28, "nvmlGpuFabricInfo_t");

// The third version. The second ends before the summary.
struct fabric_v {
	unsigned int version;
	unsigned char cluster[16];
	int status;
	unsigned int clique;
	unsigned char state;
	unsigned int mask;
	unsigned char summary;
};
_Static_assert(sizeof(struct fabric_v) == 40, "nvmlGpuFabricInfo_v3_t");
#define FABRIC_V2 ((unsigned int)offsetof(struct fabric_v, summary) | 2u << 24)
_Static_assert(offsetof(struct fabric_v, summary) == 36, "nvmlGpuFabricInfo_v2_t");

struct platform {
	unsigned int version;
	unsigned char guid[16], chassis[16];
	unsigned char slot, tray, host, peer, module;
};
_Static_assert(sizeof(struct platform) == 44, "nvmlPlatformInfo_v2_t");

struct pci {
	char legacy[16];
	unsigned int domain, bus, device, id, subsystem;
	char bus_id[32];
};
_Static_assert(sizeof(struct pci) == 68, "nvmlPciInfo_t");

struct licence {
	int supported;
	unsigned int count;
	struct {
		unsigned int code, state;
		char info[128], product[128];
		unsigned int enabled;
		struct {
			unsigned int year;
			unsigned short month, day, hour, min, sec;
			unsigned char status;
		} expiry;
	} feature[3];
};
_Static_assert(sizeof(struct licence) == 860, "nvmlGridLicensableFeatures_t");
#define LICENCE_FEATURES 3
#define LICENCE_VGPU 1 // NVML_GRID_LICENSE_FEATURE_CODE_VGPU

struct gpm_support {
	unsigned int version, supported;
};
_Static_assert(sizeof(struct gpm_support) == 8, "nvmlGpmSupport_t");
#define GPM_SUPPORT_VERSION 1

struct vgpu_licence {
	unsigned char licensed;
	struct {
		unsigned int year;
		unsigned short month, day, hour, min, sec;
		unsigned char status;
	} expiry;
	unsigned int state;
};
_Static_assert(sizeof(struct vgpu_licence) == 24, "nvmlVgpuLicenseInfo_t");

struct cc_state {
	unsigned int environment, feature, dev_tools;
};
_Static_assert(sizeof(struct cc_state) == 12, "nvmlConfComputeSystemState_t");

_Static_assert(sizeof(struct wg_field_value) == 40, "nvmlFieldValue_t");
_Static_assert(sizeof(unsigned long) == 8, "words of an affinity mask");

typedef int (*get_struct)(device, void *);
typedef int (*get_uint)(device, unsigned int *);
typedef int (*get_uint_of)(device, unsigned int, unsigned int *);
typedef int (*get_uint_pair)(device, unsigned int *, unsigned int *);
typedef int (*get_uint64)(device, unsigned long long *);
typedef int (*get_uint64_of2)(device, unsigned int, unsigned int, unsigned long long *);
typedef int (*get_uint64_of3)(device, unsigned int, unsigned int, unsigned int, unsigned long long *);
typedef int (*get_count)(device, unsigned int *, void *);
typedef int (*get_count_of)(device, unsigned int, unsigned int *, void *);
typedef int (*get_affinity)(device, unsigned int, unsigned long *);
typedef int (*get_affinity_of)(device, unsigned int, unsigned long *, unsigned int);
typedef int (*check)(device);
typedef int (*get_system)(void *);
typedef int (*get_vgpu_uint)(unsigned int, unsigned int *);
typedef int (*get_vgpu_uint64)(unsigned int, unsigned long long *);
typedef int (*get_vgpu_licence)(unsigned int, struct vgpu_licence *);
typedef int (*get_vgpus)(device, unsigned int *, unsigned int *);
typedef int (*get_vgpu_text)(unsigned int, char *, unsigned int);
typedef int (*get_field_values)(device, int, struct wg_field_value *);

// Counters beyond 2^53 lose their last bits in a double; NVML has none that
// reaches it within years: bytes over PCIe or NVLink at 1 TB/s need 2.5 hours,
// which is why those are only used for differences, whose error stays below
// 2^(64-53) bytes, and energy in mJ at 1 kW 285 years.

static void put_uint(struct wg_slot *s, unsigned int v) {
	if (v == UINT_MAX) // NVML_VALUE_NOT_AVAILABLE
		s->code = WG_NO_VALUE;
	else
		s->value = v;
}

static void put_uint64(struct wg_slot *s, unsigned long long v) {
	if (v == ULLONG_MAX)
		s->code = WG_NO_VALUE;
	else
		s->value = (double)v;
}

// put_mask stores a word of a bit mask as DCGM does, as a signed number, if a
// double can hold it exactly: a mask with other bits is worse than none.
static void put_mask(struct wg_slot *s, unsigned long v) {
	double d = (double)(int64_t)v;
	if (d >= 0x1p63 || (int64_t)d != (int64_t)v)
		s->code = WG_NO_VALUE;
	else
		s->value = d;
}

static int put_memory(const struct wg_call *c, struct wg_slot *s) {
	if (c->shape == WG_MEMORY) {
		struct memory m = {0};
		int code = ((get_struct)(uintptr_t)c->fn)((device)(uintptr_t)c->dev, &m);
		put_uint64(&s[0], m.total);
		put_uint64(&s[1], m.free);
		put_uint64(&s[2], m.used);
		return code;
	}
	struct memory_v2 m = {.version = VERSION_OF(struct memory_v2, 2)};
	int code = ((get_struct)(uintptr_t)c->fn)((device)(uintptr_t)c->dev, &m);
	put_uint64(&s[0], m.total);
	put_uint64(&s[1], m.free);
	put_uint64(&s[2], m.used);
	put_uint64(&s[3], m.reserved);
	return code;
}

// put_fabric asks for the newest version that the driver knows, and remembers it
// in the call's first argument.
static int put_fabric(struct wg_call *c, struct wg_slot *s) {
	if (c->shape == WG_FABRIC) {
		struct fabric f = {0};
		int code = ((get_struct)(uintptr_t)c->fn)((device)(uintptr_t)c->dev, &f);
		s[0].value = f.state;
		s[1].value = f.status;
		s[2].value = f.clique;
		return code;
	}
	struct fabric_v f = {.version = c->arg[0] ? c->arg[0] : VERSION_OF(struct fabric_v, 3)};
	int code = ((get_struct)(uintptr_t)c->fn)((device)(uintptr_t)c->dev, &f);
	if (code == WG_ARGUMENT_VERSION_MISMATCH && c->arg[0] == 0) {
		memset(&f, 0, sizeof f);
		f.version = c->arg[0] = FABRIC_V2;
		code = ((get_struct)(uintptr_t)c->fn)((device)(uintptr_t)c->dev, &f);
	}
	s[0].value = f.state;
	s[1].value = f.status;
	s[2].value = f.clique;
	s[3].value = f.mask;
	s[4].value = f.summary;
	if (c->arg[0] == FABRIC_V2)
		s[4].code = WG_NOT_SUPPORTED;
	return code;
}

static int put_licence(const struct wg_call *c, struct wg_slot *s) {
	struct licence l = {0};
	int code = ((get_struct)(uintptr_t)c->fn)((device)(uintptr_t)c->dev, &l);
	s->value = 0;
	for (unsigned int i = 0; l.supported && i < l.count && i < LICENCE_FEATURES; i++)
		if (l.feature[i].code == LICENCE_VGPU)
			s->value = l.feature[i].state != 0;
	return code;
}

static int put_affinity(const struct wg_call *c, struct wg_slot *s) {
	unsigned long words[4] = {0};
	int code;
	if (c->shape == WG_AFFINITY)
		code = ((get_affinity)(uintptr_t)c->fn)((device)(uintptr_t)c->dev, 4, words);
	else
		code = ((get_affinity_of)(uintptr_t)c->fn)((device)(uintptr_t)c->dev, 4, words, c->arg[0]);
	for (int i = 0; i < 4; i++)
		put_mask(&s[i], words[i]);
	return code;
}

// put_count: with no place for the elements NVML says how many there are, in
// newer drivers with success, in older ones with the error that they do not fit.
static int put_count(const struct wg_call *c, struct wg_slot *s) {
	unsigned int n = 0;
	int code;
	if (c->shape == WG_COUNT)
		code = ((get_count)(uintptr_t)c->fn)((device)(uintptr_t)c->dev, &n, NULL);
	else
		code = ((get_count_of)(uintptr_t)c->fn)((device)(uintptr_t)c->dev, c->arg[0], &n, NULL);
	put_uint(s, n);
	return code == WG_INSUFFICIENT_SIZE ? WG_SUCCESS : code;
}

// put_numbers makes a call whose results are plain numbers.
static int put_numbers(const struct wg_call *c, struct wg_slot *s) {
	device dev = (device)(uintptr_t)c->dev;
	uintptr_t fn = (uintptr_t)c->fn;
	unsigned int a = 0, b = 0;
	unsigned long long n = 0;
	int code;
	switch (c->shape) {
	case WG_UINT:
		code = ((get_uint)fn)(dev, &a);
		put_uint(s, a);
		return code;
	case WG_UINT_OF:
		code = ((get_uint_of)fn)(dev, c->arg[0], &a);
		put_uint(s, a);
		return code;
	case WG_UINT_PAIR:
		code = ((get_uint_pair)fn)(dev, &a, &b);
		put_uint(&s[0], a);
		put_uint(&s[1], b);
		return code;
	case WG_UINT64:
	case WG_MASK64:
		code = ((get_uint64)fn)(dev, &n);
		put_uint64(s, n);
		return code;
	case WG_UINT64_OF2:
		code = ((get_uint64_of2)fn)(dev, c->arg[0], c->arg[1], &n);
		put_uint64(s, n);
		return code;
	case WG_UINT64_OF3:
		code = ((get_uint64_of3)fn)(dev, c->arg[0], c->arg[1], c->arg[2], &n);
		put_uint64(s, n);
		return code;
	}
	return WG_NOT_SUPPORTED;
}

// put_struct makes a call that fills one of NVML's structs.
static int put_struct(const struct wg_call *c, struct wg_slot *s) {
	device dev = (device)(uintptr_t)c->dev;
	get_struct fn = (get_struct)(uintptr_t)c->fn;
	int code;
	switch (c->shape) {
	case WG_UTILIZATION: {
		struct utilization u = {0};
		code = fn(dev, &u);
		put_uint(&s[0], u.gpu);
		put_uint(&s[1], u.memory);
		return code;
	}
	case WG_BAR1: {
		struct memory m = {0}; // nvmlBAR1Memory_t has the same members
		code = fn(dev, &m);
		put_uint64(&s[0], m.total);
		put_uint64(&s[1], m.free);
		put_uint64(&s[2], m.used);
		return code;
	}
	case WG_MARGIN: {
		struct margin m = {.version = VERSION_OF(struct margin, 1)};
		code = fn(dev, &m);
		s->value = m.degrees;
		return code;
	}
	case WG_SRAM: {
		struct sram e = {.version = VERSION_OF(struct sram, 1)};
		code = fn(dev, &e);
		s->value = e.exceeded != 0;
		return code;
	}
	case WG_HISTOGRAM: {
		struct histogram h = {0};
		code = fn(dev, &h);
		put_uint(&s[0], h.max);
		put_uint(&s[1], h.high);
		put_uint(&s[2], h.partial);
		put_uint(&s[3], h.low);
		put_uint(&s[4], h.none);
		return code;
	}
	case WG_UNREPAIRABLE: {
		unsigned int flag = 0;
		code = fn(dev, &flag);
		s->value = flag != 0;
		return code;
	}
	case WG_PLATFORM: {
		struct platform p = {.version = VERSION_OF(struct platform, 2)};
		code = fn(dev, &p);
		s[0].value = p.slot;
		s[1].value = p.tray;
		s[2].value = p.host;
		s[3].value = p.peer;
		s[4].value = p.module;
		return code;
	}
	case WG_PCI: {
		struct pci p = {{0}, 0, 0, 0, 0, 0, {0}};
		code = fn(dev, &p);
		s[0].value = p.id;
		s[1].value = p.subsystem;
		return code;
	}
	case WG_GPM_SUPPORT: {
		struct gpm_support g = {.version = GPM_SUPPORT_VERSION};
		code = fn(dev, &g);
		s->value = g.supported != 0;
		return code;
	}
	}
	return WG_NOT_SUPPORTED;
}

// put_system makes a call that concerns the node.
static int put_system(const struct wg_call *c, struct wg_slot *s) {
	get_system fn = (get_system)(uintptr_t)c->fn;
	if (c->shape == WG_SYSTEM_INT) {
		int n = 0;
		int code = fn(&n);
		s->value = n;
		return code;
	}
	struct cc_state cc = {0};
	int code = fn(&cc);
	s->value = cc.feature;
	return code;
}

// put_vgpu makes a call about a vGPU of this host.
static int put_vgpu(const struct wg_call *c, struct wg_slot *s) {
	unsigned int vgpu = (unsigned int)c->dev, n = 0;
	uintptr_t fn = (uintptr_t)c->fn;
	int code;
	if (c->shape == WG_VGPU_UINT64) {
		unsigned long long bytes = 0;
		code = ((get_vgpu_uint64)fn)(vgpu, &bytes);
		put_uint64(s, bytes);
	} else if (c->shape == WG_VGPU_LICENCE) {
		struct vgpu_licence l = {0};
		code = ((get_vgpu_licence)fn)(vgpu, &l);
		s->value = l.licensed != 0;
	} else {
		code = ((get_vgpu_uint)fn)(vgpu, &n);
		put_uint(s, n);
	}
	return code;
}

static int put_valid(const struct wg_call *c, struct wg_slot *s) {
	int code = ((check)(uintptr_t)c->fn)((device)(uintptr_t)c->dev);
	s->value = code == WG_SUCCESS;
	return code == WG_CORRUPTED_INFOROM ? WG_SUCCESS : code;
}

static int make_call(struct wg_call *c, struct wg_slot *s) {
	switch (c->shape) {
	case WG_MEMORY:
	case WG_MEMORY_V2:
		return put_memory(c, s);
	case WG_FABRIC:
	case WG_FABRIC_V:
		return put_fabric(c, s);
	case WG_LICENCE:
		return put_licence(c, s);
	case WG_COUNT:
	case WG_COUNT_OF:
		return put_count(c, s);
	case WG_AFFINITY:
	case WG_AFFINITY_OF:
		return put_affinity(c, s);
	case WG_VALID:
		return put_valid(c, s);
	case WG_SYSTEM_INT:
	case WG_SYSTEM_CC:
		return put_system(c, s);
	case WG_VGPU_UINT:
	case WG_VGPU_UINT64:
	case WG_VGPU_LICENCE:
		return put_vgpu(c, s);
	case WG_UTILIZATION:
	case WG_BAR1:
	case WG_MARGIN:
	case WG_SRAM:
	case WG_HISTOGRAM:
	case WG_UNREPAIRABLE:
	case WG_PLATFORM:
	case WG_PCI:
	case WG_GPM_SUPPORT:
		return put_struct(c, s);
	}
	return put_numbers(c, s);
}

// put_value takes over one field. The type is not always right: NVML leaves it
// at 0, which is double, for ECC counts (NVIDIA bug 2032468) and the memory's
// temperature, as comments in DCGM's DcgmCacheManager.cpp say. Integers look like
// subnormal doubles then, which no reading is.
static void put_value(struct wg_slot *s, const struct wg_field_value *f) {
	enum { DOUBLE, UINT, ULONG, ULONGLONG, LONGLONG, INT, USHORT };
	if (f->code != WG_SUCCESS)
		return;
	switch (f->type) {
	case DOUBLE:
		if (f->value.ull < 1ull << 52)
			s->value = (double)f->value.ull;
		else
			s->value = f->value.d;
		return;
	case UINT:
		put_uint(s, f->value.ui);
		return;
	case ULONG:
	case ULONGLONG:
		put_uint64(s, f->value.ull);
		return;
	case LONGLONG:
		s->value = (double)f->value.sll;
		return;
	case INT:
		s->value = f->value.si;
		return;
	case USHORT:
		s->value = f->value.us;
		return;
	}
	s->code = WG_NO_VALUE;
}

// ask_values asks for the fields that are due, in one call.
static int ask_values(struct wg_batch *b) {
	uint32_t n = 0;
	for (uint32_t i = 0; i < b->values; i++) {
		if (!b->value[i].due)
			continue;
		// NVML may leave a field as it was, all of ECC's where ECC is off (NVIDIA bug
		// 2009232), so what it is before the call is "not supported".
		b->scratch[n++] = (struct wg_field_value){.id = b->value[i].id, .scope = b->value[i].scope, .code = WG_NOT_SUPPORTED};
	}
	if (n == 0)
		return 0;
	int64_t start = wg_now();
	int code = ((get_field_values)(uintptr_t)b->field_values)((device)(uintptr_t)b->dev, (int)n, b->scratch);
	b->values_at = wg_now();
	b->meter[b->values_meter].count++;
	b->meter[b->values_meter].nanos += (uint64_t)(b->values_at - start);

	int stop = wg_fatal(code) ? code : 0;
	n = 0;
	for (uint32_t i = 0; i < b->values; i++) {
		struct wg_value *v = &b->value[i];
		if (!v->due)
			continue;
		const struct wg_field_value *f = &b->scratch[n++];
		struct wg_slot *s = &b->slot[v->slot];
		s->made = 1;
		s->code = code != WG_SUCCESS ? code : f->code;
		if (code == WG_SUCCESS) {
			v->stamp = f->stamp;
			v->type = (int32_t)f->type;
			put_value(s, f);
		}
		if (!stop && wg_fatal(s->code))
			stop = s->code;
	}
	return stop;
}

int wg_run(struct wg_batch *b) {
	memset(b->meter, 0, b->meters * sizeof *b->meter);
	for (uint32_t i = 0; i < b->slots; i++)
		b->slot[i].made = 0;
	int64_t start = wg_now();
	for (uint32_t i = 0; i < b->calls; i++) {
		struct wg_call *c = &b->call[i];
		if (!c->due)
			continue;
		struct wg_slot *s = &b->slot[c->slot];
		for (uint32_t k = 0; k < c->results; k++)
			s[k].code = WG_SUCCESS;
		int code = make_call(c, s);
		int64_t end = wg_now();
		b->meter[c->meter].count++;
		b->meter[c->meter].nanos += (uint64_t)(end - start);
		start = end;
		for (uint32_t k = 0; k < c->results; k++) {
			s[k].made = 1;
			if (code != WG_SUCCESS)
				s[k].code = code;
		}
		if (wg_fatal(code))
			return code;
	}
	return b->field_values ? ask_values(b) : 0;
}

int wg_vgpus(void *fn, uint64_t dev, uint32_t *ids, uint32_t *count) {
	return ((get_vgpus)(uintptr_t)fn)((device)(uintptr_t)dev, count, ids);
}

int wg_vgpu_uuid(void *fn, uint32_t vgpu, char *buf, uint32_t size) {
	return ((get_vgpu_text)(uintptr_t)fn)(vgpu, buf, size);
}

struct wg_batch *wg_new(uint32_t calls, uint32_t values, uint32_t slots, uint32_t meters) {
	struct wg_batch *b = calloc(1, sizeof *b);
	if (!b)
		return NULL;
	b->calls = calls;
	b->values = values;
	b->slots = slots;
	b->meters = meters;
	// One more of each, so that none is empty.
	b->call = calloc(calls + 1, sizeof *b->call);
	b->value = calloc(values + 1, sizeof *b->value);
	b->slot = calloc(slots + 1, sizeof *b->slot);
	b->meter = calloc(meters + 1, sizeof *b->meter);
	b->scratch = calloc(values + 1, sizeof *b->scratch);
	if (!b->call || !b->value || !b->slot || !b->meter || !b->scratch) {
		wg_free(b);
		return NULL;
	}
	return b;
}

void wg_free(struct wg_batch *b) {
	if (!b)
		return;
	free(b->call);
	free(b->value);
	free(b->slot);
	free(b->meter);
	free(b->scratch);
	free(b);
}
