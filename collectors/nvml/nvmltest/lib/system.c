// Initialisation, shutdown, and functions without a device.
#define _GNU_SOURCE
#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // protects files and initialised
static int files[MAX_GPUS + 1];
static int file_count;

static nvmlReturn_t open_file(const struct state *s, const char *name) {
	char path[4200];
	snprintf(path, sizeof path, "%s/%s", s->dev, name);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return errno == EACCES || errno == EPERM ? NVML_ERROR_NO_PERMISSION : NVML_ERROR_DRIVER_NOT_LOADED;
	files[file_count++] = fd;
	atomic_fetch_add(word(WORD_FILES), 1);
	return NVML_SUCCESS;
}

static void close_files(void) {
	while (file_count > 0) {
		close(files[--file_count]);
		atomic_fetch_sub(word(WORD_FILES), 1);
	}
}

// open_files opens the control device and the GPUs' devices. A GPU that cannot be opened does
// not affect the others.
static nvmlReturn_t open_files(const struct state *s) {
	char name[32];
	if (!s->dev[0])
		return NVML_SUCCESS;
	nvmlReturn_t r = open_file(s, "nvidiactl");
	for (int g = 0; g < s->gpu_count && r == NVML_SUCCESS; g++) {
		const struct cell *minor = &s->gpus[g].cells[K_MINOR];
		if (s->gpus[g].absent)
			continue;
		snprintf(name, sizeof name, "nvidia%d", minor->kind == CONSTANT ? (int)minor->number : g);
		open_file(s, name);
	}
	return r;
}

static nvmlReturn_t initialise(struct call *c) {
	nvmlReturn_t r = NVML_SUCCESS;
	pthread_mutex_lock(&lock);
	if (atomic_load(&initialised) == 0)
		r = open_files(c->s);
	if (r == NVML_SUCCESS) {
		atomic_fetch_add(&initialised, 1);
		atomic_fetch_add(word(WORD_INITS), 1);
	}
	pthread_mutex_unlock(&lock);
	return leave(c, r);
}

#define INIT(f)                                                                                                                \
	struct call c;                                                                                                         \
	nvmlReturn_t entered = enter_host(&c, FN_##f, false);                                                                   \
	return entered == NVML_SUCCESS ? initialise(&c) : entered

nvmlReturn_t nvmlInit_v2(void) { INIT(nvmlInit_v2); }
nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
	(void)flags;
	INIT(nvmlInitWithFlags);
}

nvmlReturn_t nvmlShutdown(void) {
	SYSTEM(nvmlShutdown);
	nvmlReturn_t r = NVML_SUCCESS;
	pthread_mutex_lock(&lock);
	if (atomic_load(&initialised) == 0)
		r = NVML_ERROR_UNINITIALIZED; // another thread shut it down first
	else {
		atomic_fetch_sub(word(WORD_INITS), 1);
		if (atomic_fetch_sub(&initialised, 1) == 1)
			close_files();
	}
	pthread_mutex_unlock(&lock);
	LEAVE(r);
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned length) {
	SYSTEM(nvmlSystemGetDriverVersion);
	LEAVE(put_text(c.s->driver, out, length));
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *out, unsigned length) {
	struct call c;
	nvmlReturn_t r = enter_host(&c, FN_nvmlSystemGetNVMLVersion, false); // works without initialisation
	return r == NVML_SUCCESS ? leave(&c, put_text(c.s->nvml, out, length)) : r;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *out) {
	SYSTEM(nvmlSystemGetCudaDriverVersion_v2);
	*out = c.s->cuda;
	LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlSystemGetConfComputeState(nvmlConfComputeSystemState_t *out) {
	SYSTEM(nvmlSystemGetConfComputeState);
	*out = (nvmlConfComputeSystemState_t){0};
	LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned *count) {
	SYSTEM(nvmlGetExcludedDeviceCount);
	*count = 0;
	LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t d, nvmlGridLicensableFeatures_t *out) {
	unsigned v;
	GPU(nvmlDeviceGetGridLicensableFeatures_v4, d);
	nvmlReturn_t r = out ? get_uint(&c, K_GRID_SUPPORTED, &v) : NVML_ERROR_INVALID_ARGUMENT;
	if (r != NVML_SUCCESS)
		LEAVE(r);
	*out = (nvmlGridLicensableFeatures_t){.isGridLicenseSupported = (int)v, .licensableFeaturesCount = 1};
	nvmlGridLicensableFeature_t *f = &out->gridLicensableFeatures[0];
	f->featureCode = NVML_GRID_LICENSE_FEATURE_CODE_VGPU;
	get_uint(&c, K_GRID_LICENSED, &f->featureState);
	f->licenseExpiry.status = NVML_GRID_LICENSE_EXPIRY_PERMANENT;
	LEAVE(NVML_SUCCESS);
}
