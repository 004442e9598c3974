// An NVML with answers that no driver gives: counts, IDs and enums of all ones, unterminated
// texts that are not UTF-8, infinite values, two GPUs with the same UUID and one whose UUID
// differs at each call. Each function succeeds. Prototypes come from nvml.h.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef unsigned u;
typedef unsigned long long ull;
typedef struct { u index; } *dev;

enum { OK = 0, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, GPUS = 3 };
static struct { u index; } gpus[GPUS] = {{0}, {1}, {2}};
static u calls;

static int junk(char *out, u size) { memset(out, 0xff, size); return OK; }
static int text(const char *s, char *out, u size) { snprintf(out, size, "%s", s); return OK; }

int nvmlInit_v2(void) { return OK; }
int nvmlInitWithFlags(u flags) { (void)flags; return OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { (void)code; return "\xff"; }
int nvmlSystemGetDriverVersion(char *out, u size) { return text("570.00", out, size); }
int nvmlSystemGetNVMLVersion(char *out, u size) { return text("12.570.00", out, size); }
int nvmlDeviceGetCount_v2(u *n) { *n = ~0u; return OK; }
int nvmlDeviceGetHandleByIndex_v2(u i, void **d) { *d = i < GPUS ? &gpus[i] : NULL; return i < GPUS ? OK : NOT_FOUND; }

int nvmlDeviceGetUUID(dev d, char *out, u size) {
	char s[40];
	snprintf(s, sizeof s, "GPU-%u\xff", d->index < 2 ? 0 : __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED));
	return text(s, out, size);
}

typedef struct { char legacy[16]; u domain, bus, device, id, subsystem; char text[32]; } pci;
int nvmlDeviceGetPciInfo_v3(dev d, pci *out) {
	memset(out, 0xff, sizeof *out);
	out->device = d->index;
	return OK;
}

#define TEXT(f) int f(dev d, char *out, u size) { (void)d; return junk(out, size); }
TEXT(nvmlDeviceGetName) TEXT(nvmlDeviceGetSerial) TEXT(nvmlDeviceGetVbiosVersion) TEXT(nvmlDeviceGetInforomImageVersion)
int nvmlDeviceGetInforomVersion(dev d, u object, char *out, u size) { (void)d, (void)object; return junk(out, size); }

#define ONE(f) int f(dev d, u *out) { (void)d; *out = ~0u; return OK; }
ONE(nvmlDeviceGetBrand) ONE(nvmlDeviceGetMinorNumber) ONE(nvmlDeviceGetMaxMigDeviceCount) ONE(nvmlDeviceGetGpuInstanceId)
ONE(nvmlDeviceGetComputeInstanceId) ONE(nvmlDeviceGetPerformanceState) ONE(nvmlDeviceGetComputeMode) ONE(nvmlDeviceGetArchitecture)
ONE(nvmlDeviceGetIndex) ONE(nvmlDeviceGetVirtualizationMode) ONE(nvmlDeviceGetFanSpeed)

#define TWO(f, first) int f(dev d, u *a, u *b) { (void)d; *a = first, *b = ~0u; return OK; }
TWO(nvmlDeviceGetMigMode, d->index == 0) TWO(nvmlDeviceGetEccMode, ~0u)

#define BY(f) int f(dev d, u which, u *out) { (void)d, (void)which; *out = 0x7fffffff; return OK; }
BY(nvmlDeviceGetTemperature) BY(nvmlDeviceGetClockInfo) BY(nvmlDeviceGetNvLinkState)

int nvmlDeviceGetMigDeviceHandleByIndex(dev d, u i, void **out) { (void)i; *out = d; return OK; }
int nvmlDeviceGetP2PStatus(dev a, dev b, u which, int *out) { (void)which; *out = a->index < b->index ? -1 : 0x7fffffff; return OK; }

// Lists whose counts are all ones.
#define LIST(f) int f(dev d, u *n, void *list) { (void)d, (void)list; *n = ~0u; return OK; }
LIST(nvmlDeviceGetActiveVgpus) LIST(nvmlDeviceGetComputeRunningProcesses_v3) LIST(nvmlDeviceGetGraphicsRunningProcesses_v3)
int nvmlDeviceGetMPSComputeRunningProcesses_v3(dev d, u *n, void *list) { (void)d, (void)list; *n = ~0u; return INSUFFICIENT_SIZE; }
int nvmlDeviceGetRetiredPages(dev d, u cause, u *n, ull *list) { (void)d, (void)list; *n = ~0u; return cause ? OK : INSUFFICIENT_SIZE; }
typedef struct { u version, count; ull since; void *list; } samples;
int nvmlDeviceGetProcessesUtilizationInfo(dev d, samples *q) { q->count = ~0u; return d->index ? OK : INSUFFICIENT_SIZE; }

typedef struct { u id, scope; long long stamp, latency; u type, code; double value; } field;
int nvmlDeviceGetFieldValues(dev d, int n, field *all) {
	(void)d;
	for (int i = 0; i < n; i++) {
		field *f = &all[i];
		f->stamp = i % 2 ? INT64_MIN : INT64_MAX, f->code = i % 8 == 7 ? ~0u : OK;
		f->type = i % 3 == 2 ? ~0u : 0, f->value = i % 2 ? INFINITY : NAN;
		f->id = f->scope = ~0u;
	}
	return OK;
}

// Endless events of instances that do not exist.
typedef struct { void *device; ull type, data; u instance, compute; } event;
int nvmlDeviceGetSupportedEventTypes(dev d, ull *types) { (void)d; *types = ~0ull; return OK; }
int nvmlEventSetCreate(void **set) { *set = &calls; return OK; }
int nvmlDeviceRegisterEvents(dev d, ull types, void *set) { (void)d, (void)types, (void)set; return OK; }
int nvmlEventSetFree(void *set) { (void)set; return OK; }
int nvmlEventSetWait_v2(void *set, event *out, u timeout) {
	(void)set, (void)timeout;
	*out = (event){NULL, 8, ~0ull - __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED), calls, ~0u - calls};
	return OK;
}

// Metrics that are not finite.
typedef struct { u id, code; double value; char *names[3]; } metric;
typedef struct { u version, n; void *a, *b; metric all[]; } metrics;
int nvmlGpmQueryDeviceSupport(dev d, u *out) { (void)d; out[1] = ~0u; return OK; }
int nvmlGpmSampleAlloc(void **s) { *s = &calls; return OK; }
int nvmlGpmSampleFree(void *s) { (void)s; return OK; }
int nvmlGpmSampleGet(dev d, void *s) { (void)d, (void)s; return OK; }
int nvmlGpmMetricsGet(metrics *m) {
	for (u i = 0; i < m->n; i++) m->all[i].id = ~0u, m->all[i].code = OK, m->all[i].value = i % 2 ? INFINITY : -NAN;
	m->n = ~0u;
	return OK;
}
