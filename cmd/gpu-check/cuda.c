//go:build linux && cgo

// The functions of CUDA's driver API that a matrix multiplication needs. Types and values come
// from cuda.h of CUDA 12; libcuda has all of them since CUDA 7 (driver 346).
#define _GNU_SOURCE
#include "cuda.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef int CUresult, CUdevice;
typedef void *CUcontext, *CUmodule, *CUfunction, *CUstream;
typedef unsigned long long CUdeviceptr;
_Static_assert(sizeof(CUdeviceptr) == sizeof(void *), "64 bits only");

enum { ATTRIBUTE_MULTIPROCESSORS = 16, ATTRIBUTE_MAJOR = 75 };

#define FUNCTIONS(F) \
	F(Init, "cuInit", (unsigned)) \
	F(DeviceGetCount, "cuDeviceGetCount", (int *)) \
	F(DeviceGet, "cuDeviceGet", (CUdevice *, int)) \
	F(DeviceGetPCIBusId, "cuDeviceGetPCIBusId", (char *, int, CUdevice)) \
	F(DeviceGetAttribute, "cuDeviceGetAttribute", (int *, int, CUdevice)) \
	F(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice)) \
	F(DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease", (CUdevice)) \
	F(CtxSetCurrent, "cuCtxSetCurrent", (CUcontext)) \
	F(CtxSynchronize, "cuCtxSynchronize", (void)) \
	F(ModuleLoadData, "cuModuleLoadData", (CUmodule *, const void *)) \
	F(ModuleUnload, "cuModuleUnload", (CUmodule)) \
	F(ModuleGetFunction, "cuModuleGetFunction", (CUfunction *, CUmodule, const char *)) \
	F(MemAlloc, "cuMemAlloc_v2", (CUdeviceptr *, size_t)) \
	F(MemFree, "cuMemFree_v2", (CUdeviceptr)) \
	F(MemcpyHtoD, "cuMemcpyHtoD_v2", (CUdeviceptr, const void *, size_t)) \
	F(LaunchKernel, "cuLaunchKernel", (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **)) \
	F(GetErrorName, "cuGetErrorName", (CUresult, const char **))

#define MEMBER(name, symbol, arguments) CUresult(*name) arguments;
static struct {
	FUNCTIONS(MEMBER)
} cu;

#define SYMBOL(name, symbol, arguments) {symbol, &cu.name},
static const struct {
	const char *symbol;
	void *to;
} symbols[] = {FUNCTIONS(SYMBOL)};

static atomic_bool stopped;

static const char *name_of(CUresult r) {
	const char *name = NULL;
	return cu.GetErrorName(r, &name) == 0 && name ? name : "unknown error";
}

// TRY jumps to the end of the function if a call fails, with an explanation in message.
#define TRY(call) \
	do { \
		CUresult r_ = (call); \
		if (r_ != 0) { \
			snprintf(message, 256, "%s: %s (%d)", #call, name_of(r_), r_); \
			goto end; \
		} \
	} while (0)

int gpucheck_open(const char *library, struct gpucheck_device *devices, int max, char (*to)[256]) {
	char *message = *to;
	int n = 0;
	void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	if (!handle) {
		snprintf(message, 256, "%s", dlerror());
		return -1;
	}
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
		void *p = dlsym(handle, symbols[i].symbol);
		if (!p) {
			snprintf(message, 256, "%s has no %s", library, symbols[i].symbol);
			return -1;
		}
		memcpy(symbols[i].to, &p, sizeof p);
	}
	TRY(cu.Init(0));
	TRY(cu.DeviceGetCount(&n));
	if (n > max)
		n = max;
	for (int i = 0; i < n; i++) {
		CUdevice device;
		TRY(cu.DeviceGet(&device, i));
		TRY(cu.DeviceGetPCIBusId(devices[i].pci, sizeof devices[i].pci, device));
		TRY(cu.DeviceGetAttribute(&devices[i].major, ATTRIBUTE_MAJOR, device));
	}
	return n;
end:
	return -1;
}

enum { N = 16, THREADS = 256, WARPS = THREADS / 32, BLOCKS_PER_SM = 4, ROUNDS = 1024 };

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int gpucheck_run(int ordinal, int element_size, const char *ptx, const char *name, char (*to)[256]) {
	char *message = *to;
	CUdevice device = -1;
	CUcontext context = NULL;
	CUmodule module = NULL;
	CUfunction function;
	CUdeviceptr a = 0, d = 0;
	union {
		uint16_t half[N * N];
		float single[N * N];
	} ones;
	int multiprocessors, result = -1;
	unsigned rounds = ROUNDS, repeat = 1;

	for (int i = 0; i < N * N; i++)
		if (element_size == 2)
			ones.half[i] = 0x3c00;
		else
			ones.single[i] = 1;
	TRY(cu.DeviceGet(&device, ordinal));
	TRY(cu.DeviceGetAttribute(&multiprocessors, ATTRIBUTE_MULTIPROCESSORS, device));
	TRY(cu.DevicePrimaryCtxRetain(&context, device));
	TRY(cu.CtxSetCurrent(context));
	TRY(cu.ModuleLoadData(&module, ptx));
	TRY(cu.ModuleGetFunction(&function, module, name));
	unsigned blocks = (unsigned)(multiprocessors * BLOCKS_PER_SM);
	TRY(cu.MemAlloc(&a, (size_t)(N * N * element_size)));
	TRY(cu.MemAlloc(&d, (size_t)blocks * WARPS * N * N * sizeof(float)));
	TRY(cu.MemcpyHtoD(a, &ones, (size_t)(N * N * element_size)));

	void *arguments[] = {&a, &a, &d, &rounds, &repeat};
	do {
		double start = now();
		// Four in a row, so that the GPU never waits for the CPU.
		for (int i = 0; i < 4; i++)
			TRY(cu.LaunchKernel(function, blocks, 1, 1, THREADS, 1, 1, 0, NULL, arguments, NULL));
		TRY(cu.CtxSynchronize());
		// Long enough to make launch overhead negligible, short enough to stop at once.
		if (now() - start < 0.05 && repeat < 1u << 20)
			repeat *= 2;
	} while (!atomic_load(&stopped));
	result = 0;
end:
	if (a)
		cu.MemFree(a);
	if (d)
		cu.MemFree(d);
	if (module)
		cu.ModuleUnload(module);
	if (context) {
		cu.CtxSetCurrent(NULL);
		cu.DevicePrimaryCtxRelease(device);
	}
	return result;
}

void gpucheck_stop(bool stop) { atomic_store(&stopped, stop); }
