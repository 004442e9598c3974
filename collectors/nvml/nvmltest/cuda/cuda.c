// A simulated libcuda.so.1: as much of CUDA's driver API as gpu-check calls. It
// multiplies on the CPU, and tells the simulated NVML of the load by adding to its
// script, whose name is in the file libcuda.so.1.node next to this library.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef int CUresult, CUdevice;
typedef unsigned long long CUdeviceptr;

enum { OK = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_IMAGE = 200, NOT_FOUND = 500 };
enum { MAX_GPUS = 32, MULTIPROCESSORS = 2 };

static char script[4096];
static int gpus;
static struct gpu {
	int major, minor, bus, contexts, busy;
	struct gpu *self;
} gpu[MAX_GPUS];
static _Thread_local struct gpu *current;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long long epoch;

static double simulated_time(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return ((double)t.tv_sec * 1e9 + (double)t.tv_nsec - (double)epoch) / 1e9;
}

// read_script takes from the script what CUDA reports of GPUs, too.
static CUresult read_script(void) {
	char line[1024];
	FILE *f = fopen(script, "re");
	if (!f)
		return NO_DEVICE;
	while (fgets(line, sizeof line, f)) {
		int g, v;
		sscanf(line, "gpus %d", &gpus);
		sscanf(line, "time epoch %llu", &epoch);
		for (g = 0; g < MAX_GPUS; g++) {
			if (sscanf(line, "gpu * cc.major %d", &v) == 1)
				gpu[g].major = v;
			if (sscanf(line, "gpu * cc.minor %d", &v) == 1)
				gpu[g].minor = v;
		}
		if (sscanf(line, "gpu %d pci.bus %d", &g, &v) == 2 && g >= 0 && g < MAX_GPUS)
			gpu[g].bus = v;
	}
	fclose(f);
	return gpus > 0 && gpus <= MAX_GPUS ? OK : NO_DEVICE;
}

CUresult cuInit(unsigned flags) {
	char path[4200];
	Dl_info info;
	(void)flags;
	if (!dladdr((void *)cuInit, &info))
		return NO_DEVICE;
	snprintf(path, sizeof path, "%s.node", info.dli_fname);
	FILE *f = fopen(path, "re");
	if (!f)
		return NO_DEVICE;
	int ok = fgets(script, sizeof script, f) != NULL;
	fclose(f);
	script[strcspn(script, "\n")] = 0;
	return ok ? read_script() : NO_DEVICE;
}

// say adds lines to the script in one write and makes NVML read it: the first word
// of the control file is its generation.
static void say(const char *text) {
	char path[4200];
	int fd = open(script, O_WRONLY | O_APPEND | O_CLOEXEC);
	if (fd < 0)
		return;
	if (write(fd, text, strlen(text)) < 0)
		perror("simulated CUDA");
	close(fd);
	snprintf(path, sizeof path, "%s.control", script);
	fd = open(path, O_RDWR | O_CLOEXEC);
	void *p = fd < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p != MAP_FAILED) {
		__atomic_fetch_add((uint64_t *)p, 1, __ATOMIC_SEQ_CST);
		munmap(p, 4096);
	}
	if (fd >= 0)
		close(fd);
}

static void set_load(struct gpu *g, double load, int half) {
	char text[512];
	int n = (int)(g - gpu);
	snprintf(text, sizeof text, "load %d %.9f %g\ngpu %d gpm[5] %s * load\ngpu %d gpm[7] %s * load\ngpu %d gpm[12] %s * load\n", n, simulated_time(), load, n,
		 half ? "61" : "0", n, half ? "61" : "0", n, half ? "3" : "88");
	say(text);
}

CUresult cuDeviceGetCount(int *count) {
	*count = gpus;
	return gpus ? OK : NOT_INITIALIZED;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
	*device = ordinal;
	return ordinal >= 0 && ordinal < gpus ? OK : INVALID_VALUE;
}

CUresult cuDeviceGetPCIBusId(char *out, int size, CUdevice device) {
	snprintf(out, (size_t)size, "0000:%02X:00.0", (unsigned)gpu[device].bus);
	return OK;
}

CUresult cuDeviceGetAttribute(int *out, int attribute, CUdevice device) {
	switch (attribute) {
	case 16: *out = MULTIPROCESSORS; return OK;
	case 75: *out = gpu[device].major; return OK;
	case 76: *out = gpu[device].minor; return OK;
	}
	return INVALID_VALUE;
}

CUresult cuDevicePrimaryCtxRetain(struct gpu **context, CUdevice device) {
	*context = &gpu[device];
	return OK;
}

// The load ends with the context.
CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
	pthread_mutex_lock(&lock);
	int busy = gpu[device].busy;
	gpu[device].busy = 0;
	pthread_mutex_unlock(&lock);
	if (busy)
		set_load(&gpu[device], 0, 1);
	return OK;
}

CUresult cuCtxSetCurrent(struct gpu *context) {
	current = context;
	return OK;
}

CUresult cuCtxSynchronize(void) {
	nanosleep(&(struct timespec){0, 20000000}, NULL);
	return OK;
}

// A module is the kernel's name.
CUresult cuModuleLoadData(const char **module, const char *ptx) {
	static const char *const kernels[] = {"half_matmul", "single_matmul"};
	for (int i = 0; i < 2; i++) {
		char entry[64];
		snprintf(entry, sizeof entry, ".visible .entry %s(", kernels[i]);
		if (strstr(ptx, ".version ") && strstr(ptx, entry)) {
			*module = kernels[i];
			return OK;
		}
	}
	return INVALID_IMAGE;
}

CUresult cuModuleUnload(const char *module) {
	(void)module;
	return OK;
}

CUresult cuModuleGetFunction(const char **function, const char *module, const char *name) {
	*function = module;
	return strcmp(module, name) == 0 ? OK : NOT_FOUND;
}

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size) {
	void *p = calloc(1, size);
	*out = (CUdeviceptr)(uintptr_t)p;
	return p ? OK : 2;
}

CUresult cuMemFree_v2(CUdeviceptr p) {
	free((void *)(uintptr_t)p);
	return OK;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) {
	memcpy((void *)(uintptr_t)to, from, size);
	return OK;
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size) {
	memcpy(to, (void *)(uintptr_t)from, size);
	return OK;
}

static float from_half(uint16_t h) {
	int exponent = h >> 10 & 31;
	float v = exponent ? (float)(1024 + (h & 1023)) / 1024 : 0;
	for (; exponent > 15; exponent--)
		v *= 2;
	for (; exponent && exponent < 15; exponent++)
		v /= 2;
	return v;
}

// The kernels make the same tile in each warp.
CUresult cuLaunchKernel(const char *function, unsigned blocks, unsigned y, unsigned z, unsigned threads, unsigned by, unsigned bz, unsigned shared, void *stream,
			void **arguments, void **extra) {
	int half = strcmp(function, "half_matmul") == 0;
	const void *a = *(void **)arguments[0], *b = *(void **)arguments[1];
	float *d = *(float **)arguments[2], tile[256];
	unsigned rounds = *(unsigned *)arguments[3], tiles = blocks * threads / 32;
	(void)y, (void)z, (void)by, (void)bz, (void)shared, (void)stream, (void)extra;
	for (int i = 0; i < 16; i++)
		for (int j = 0; j < 16; j++) {
			float sum = 0;
			for (int k = 0; k < 16; k++) {
				if (half)
					sum += from_half(((const uint16_t *)a)[i * 16 + k]) * from_half(((const uint16_t *)b)[j * 16 + k]);
				else
					sum += ((const float *)a)[i * 16 + k] * ((const float *)b)[k * 16 + j];
			}
			tile[i * 16 + j] = 4 * (float)rounds * sum;
		}
	for (unsigned t = 0; t < tiles; t++)
		memcpy(d + t * 256, tile, sizeof tile);
	pthread_mutex_lock(&lock);
	int first = current && !current->busy;
	if (first)
		current->busy = 1;
	pthread_mutex_unlock(&lock);
	if (first)
		set_load(current, 1, half);
	return OK;
}

CUresult cuGetErrorName(CUresult code, const char **name) {
	*name = code == OK ? "CUDA_SUCCESS" : code == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : code == INVALID_IMAGE ? "CUDA_ERROR_INVALID_IMAGE" : "CUDA_ERROR_UNKNOWN";
	return OK;
}
