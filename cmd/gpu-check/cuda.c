//go:build linux && cgo

// The few functions of CUDA's driver API that a matrix multiplication takes. Their
// types and values are those of cuda.h, CUDA 12; all of them are in libcuda since
// CUDA 7 (driver 346).
#define _GNU_SOURCE
#include "cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int CUresult, CUdevice;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef unsigned long long CUdeviceptr;
_Static_assert(sizeof(CUdeviceptr) == sizeof(void *), "64 bits only");

enum { ATTRIBUTE_MULTIPROCESSORS = 16, ATTRIBUTE_MAJOR = 75, ATTRIBUTE_MINOR = 76 };

static struct {
	CUresult (*Init)(unsigned);
	CUresult (*DeviceGetCount)(int *);
	CUresult (*DeviceGet)(CUdevice *, int);
	CUresult (*DeviceGetPCIBusId)(char *, int, CUdevice);
	CUresult (*DeviceGetAttribute)(int *, int, CUdevice);
	CUresult (*DevicePrimaryCtxRetain)(CUcontext *, CUdevice);
	CUresult (*DevicePrimaryCtxRelease)(CUdevice);
	CUresult (*CtxSetCurrent)(CUcontext);
	CUresult (*CtxSynchronize)(void);
	CUresult (*ModuleLoadData)(CUmodule *, const void *);
	CUresult (*ModuleUnload)(CUmodule);
	CUresult (*ModuleGetFunction)(CUfunction *, CUmodule, const char *);
	CUresult (*MemAlloc)(CUdeviceptr *, size_t);
	CUresult (*MemFree)(CUdeviceptr);
	CUresult (*MemcpyHtoD)(CUdeviceptr, const void *, size_t);
	CUresult (*MemcpyDtoH)(void *, CUdeviceptr, size_t);
	CUresult (*LaunchKernel)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);
	CUresult (*GetErrorName)(CUresult, const char **);
} cu;

static const struct {
	const char *symbol;
	void *to;
} symbols[] = {
	{"cuInit", &cu.Init},
	{"cuDeviceGetCount", &cu.DeviceGetCount},
	{"cuDeviceGet", &cu.DeviceGet},
	{"cuDeviceGetPCIBusId", &cu.DeviceGetPCIBusId},
	{"cuDeviceGetAttribute", &cu.DeviceGetAttribute},
	{"cuDevicePrimaryCtxRetain", &cu.DevicePrimaryCtxRetain},
	{"cuDevicePrimaryCtxRelease", &cu.DevicePrimaryCtxRelease},
	{"cuCtxSetCurrent", &cu.CtxSetCurrent},
	{"cuCtxSynchronize", &cu.CtxSynchronize},
	{"cuModuleLoadData", &cu.ModuleLoadData},
	{"cuModuleUnload", &cu.ModuleUnload},
	{"cuModuleGetFunction", &cu.ModuleGetFunction},
	{"cuMemAlloc_v2", &cu.MemAlloc},
	{"cuMemFree_v2", &cu.MemFree},
	{"cuMemcpyHtoD_v2", &cu.MemcpyHtoD},
	{"cuMemcpyDtoH_v2", &cu.MemcpyDtoH},
	{"cuLaunchKernel", &cu.LaunchKernel},
	{"cuGetErrorName", &cu.GetErrorName},
};

static void *library;
static atomic_int stopped, running;

static const char *name_of(CUresult r) {
	const char *name = NULL;
	return cu.GetErrorName && cu.GetErrorName(r, &name) == 0 && name ? name : "unknown error";
}

int gpucheck_open(const char *path, char (*message)[256]) {
	if (library)
		return 0;
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!handle) {
		snprintf(*message, sizeof *message, "%s", dlerror());
		return -1;
	}
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
		void *p = dlsym(handle, symbols[i].symbol);
		if (!p) {
			snprintf(*message, sizeof *message, "%s has no %s", path, symbols[i].symbol);
			dlclose(handle);
			return -1;
		}
		memcpy(symbols[i].to, &p, sizeof p);
	}
	CUresult r = cu.Init(0);
	if (r != 0) {
		snprintf(*message, sizeof *message, "cuInit: %s (%d)", name_of(r), r);
		dlclose(handle);
		return -1;
	}
	library = handle;
	return 0;
}

int gpucheck_count(void) {
	int n = 0;
	return library && cu.DeviceGetCount(&n) == 0 ? n : 0;
}

// TRY ends a function whose result is called out at the first call that fails.
#define TRY(call)                                                                                                              \
	do {                                                                                                                   \
		CUresult r_ = (call);                                                                                           \
		if (r_ != 0) {                                                                                                  \
			snprintf(out.message, sizeof out.message, "%s: %s (%d)", #call, name_of(r_), r_);                       \
			goto end;                                                                                               \
		}                                                                                                               \
	} while (0)

struct gpucheck_device gpucheck_device(int ordinal) {
	struct gpucheck_device out = {0};
	CUdevice device;
	TRY(cu.DeviceGet(&device, ordinal));
	TRY(cu.DeviceGetPCIBusId(out.pci, sizeof out.pci, device));
	TRY(cu.DeviceGetAttribute(&out.major, ATTRIBUTE_MAJOR, device));
	TRY(cu.DeviceGetAttribute(&out.minor, ATTRIBUTE_MINOR, device));
	out.ok = 1;
end:
	return out;
}

enum { N = 16, THREADS = 256, WARPS = THREADS / 32, BLOCKS_PER_SM = 4, ROUNDS = 1024 };

// half_of is a small whole number as IEEE 754 binary16.
static uint16_t half_of(int v) {
	int exponent = 0;
	if (v == 0)
		return 0;
	while (v >> (exponent + 1))
		exponent++;
	return (uint16_t)((exponent + 15) << 10 | ((v << (10 - exponent)) & 0x3ff));
}

// Matrix elements are from 0 to 3, so that the largest sum, 9 · 16 · 4 · ROUNDS, is
// a whole number below 2^24.
static int element_a(int row, int k) { return (row + 2 * k) % 4; }
static int element_b(int k, int column) { return (3 * k + column) % 4; }

struct matrices {
	uint16_t half_a[N * N], half_b[N * N];
	float a[N * N], b[N * N], product[N * N];
};

static void fill(struct matrices *m) {
	memset(m, 0, sizeof *m);
	for (int i = 0; i < N; i++)
		for (int j = 0; j < N; j++) {
			m->a[i * N + j] = (float)element_a(i, j);
			m->b[i * N + j] = (float)element_b(i, j);
			m->half_a[i * N + j] = half_of(element_a(i, j));
			m->half_b[j * N + i] = half_of(element_b(i, j)); // by columns
			for (int k = 0; k < N; k++)
				m->product[i * N + j] += (float)(element_a(i, k) * element_b(k, j)) * 4 * ROUNDS;
		}
}

static double seconds(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

// wrong finds an element that differs from the product, in any warp's tile.
static int wrong(const struct matrices *m, const float *tiles, int count, char *message, size_t size) {
	for (int i = 0; i < count * N * N; i++)
		if (tiles[i] != m->product[i % (N * N)]) {
			snprintf(message, size, "the GPU's product is wrong: element %d of tile %d is %g, not %g", i % (N * N), i / (N * N), tiles[i],
				 m->product[i % (N * N)]);
			return 1;
		}
	return 0;
}

struct gpucheck_result gpucheck_run(int ordinal, enum gpucheck_kernel kernel, const char *ptx) {
	struct gpucheck_result out = {0};
	struct matrices m;
	CUdevice device = -1;
	CUcontext context = NULL;
	CUmodule module = NULL;
	CUfunction function;
	CUdeviceptr a = 0, b = 0, d = 0;
	float *tiles = NULL;
	int multiprocessors, counted = 0;
	unsigned rounds = ROUNDS, repeat = 1;
	size_t input = kernel == GPUCHECK_HALF ? sizeof m.half_a : sizeof m.a;

	fill(&m);
	TRY(cu.DeviceGet(&device, ordinal));
	TRY(cu.DeviceGetAttribute(&multiprocessors, ATTRIBUTE_MULTIPROCESSORS, device));
	TRY(cu.DevicePrimaryCtxRetain(&context, device));
	TRY(cu.CtxSetCurrent(context));
	TRY(cu.ModuleLoadData(&module, ptx));
	TRY(cu.ModuleGetFunction(&function, module, kernel == GPUCHECK_HALF ? "half_matmul" : "single_matmul"));
	unsigned blocks = (unsigned)(multiprocessors * BLOCKS_PER_SM);
	size_t output = (size_t)blocks * WARPS * N * N * sizeof(float);
	TRY(cu.MemAlloc(&a, input));
	TRY(cu.MemAlloc(&b, input));
	TRY(cu.MemAlloc(&d, output));
	TRY(cu.MemcpyHtoD(a, kernel == GPUCHECK_HALF ? (void *)m.half_a : (void *)m.a, input));
	TRY(cu.MemcpyHtoD(b, kernel == GPUCHECK_HALF ? (void *)m.half_b : (void *)m.b, input));

	void *arguments[] = {&a, &b, &d, &rounds, &repeat};
	double begin = seconds();
	do {
		double start = seconds();
		// Four in a row, so that the GPU need not wait for us.
		for (int i = 0; i < 4; i++)
			TRY(cu.LaunchKernel(function, blocks, 1, 1, THREADS, 1, 1, 0, NULL, arguments, NULL));
		TRY(cu.CtxSynchronize());
		if (!counted) {
			atomic_fetch_add(&running, 1);
			counted = 1;
		}
		out.launches += 4;
		out.operations += 4.0 * repeat * rounds * 4 * 2 * N * N * N * blocks * WARPS;
		// Long enough that launching costs nothing, short enough to stop at once.
		if (seconds() - start < 0.05 && repeat < 1u << 20)
			repeat *= 2;
	} while (!atomic_load(&stopped));
	out.seconds = seconds() - begin;

	tiles = malloc(output);
	if (!tiles) {
		snprintf(out.message, sizeof out.message, "out of memory");
		goto end;
	}
	TRY(cu.MemcpyDtoH(tiles, d, output));
	out.ok = !wrong(&m, tiles, (int)(blocks * WARPS), out.message, sizeof out.message);
end:
	if (counted)
		atomic_fetch_sub(&running, 1);
	free(tiles);
	if (a)
		cu.MemFree(a);
	if (b)
		cu.MemFree(b);
	if (d)
		cu.MemFree(d);
	if (module)
		cu.ModuleUnload(module);
	if (context) {
		cu.CtxSetCurrent(NULL);
		cu.DevicePrimaryCtxRelease(device);
	}
	return out;
}

void gpucheck_stop(int stop) { atomic_store(&stopped, stop); }
int gpucheck_running(void) { return atomic_load(&running); }
