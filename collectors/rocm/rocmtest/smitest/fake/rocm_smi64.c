// A librocm_smi64 for tests. It has no GPUs: the file "state" next to it has the
// result of each function, and it adds a line for each call to the file "calls".
// It keeps the real library's rules: rsmi_init lists the devices and counts
// references, and each device has a mutex. It ends the process on a call that
// would crash the real library.
//
// Build options:
//   ABI=52|62|78   ROCm release of the symbols and layouts (5.2, 6.2, 7.8)
//
// Its keys and actions are described in answer.h.
// Keys other than functions: "devices ok N", "stale ok 1" (the last holder of the
// devices' locks was killed).
#ifndef AMDSMI
#include "answer.h"

#ifndef ABI
#define ABI 52
#endif

enum { INVALID_ARGS = 1, INIT_ERROR = 8, INSUFFICIENT_SIZE = 11, MOST = 64 };

#if ABI >= 60
typedef struct {
	bool has_deep_sleep;
	uint32_t num_supported, current;
	uint64_t frequency[33];
} frequencies;
_Static_assert(sizeof(frequencies) == 280, "rsmi_frequencies_t of ROCm 6");
#else
typedef struct {
	uint32_t num_supported, current;
	uint64_t frequency[32];
} frequencies;
_Static_assert(sizeof(frequencies) == 264, "rsmi_frequencies_t of ROCm 5");
#endif

typedef struct {
	uint64_t correctable_err, uncorrectable_err;
} error_count;
typedef struct {
	uint64_t page_address, page_size;
	uint32_t status;
} page_record;
_Static_assert(sizeof(page_record) == 24, "rsmi_retired_page_record_t");

#if ABI >= 61
// Libraries that support the flag for locks between threads contain this text.
static const char rsmi_fake_environment[] = "RSMI_MUTEX_THREAD_ONLY";
#endif

static pthread_mutex_t boot = PTHREAD_MUTEX_INITIALIZER, locks[MOST];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint32_t devices;
static int references;
static bool cleared; // the locks of a killed process have been released

static void make_locks(void) {
	pthread_mutexattr_t attr;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
	for (int i = 0; i < MOST; i++)
		pthread_mutex_init(&locks[i], &attr);
}

// call is the common part of all device functions.
static int call(const char *function, uint32_t device, uint64_t argument, answer *a) {
	char key[128];
	journal(function, device, argument);
	if (references == 0)
		die("call-without-init", device);
	if (device >= devices && find("rsmi_num_monitor_devices", a)) // the claimed number may be larger
		return NOT_SUPPORTED;
	if (device >= devices)
		die("index-out-of-range", device);
	snprintf(key, sizeof key, "%s.%u.%llu", function, device, (unsigned long long)argument);
	bool found = find(key, a);
	if (!found) {
		snprintf(key, sizeof key, "%s.%u", function, device);
		found = find(key, a);
	}
	if (!found)
		found = find(function, a);
	pthread_mutex_lock(&locks[device]);
	int status = act(a, found);
	pthread_mutex_unlock(&locks[device]);
	return status;
}

static int number(const char *function, uint32_t device, uint64_t argument, uint64_t *out) {
	answer a = {0};
	int status = call(function, device, argument, &a);
	if (status == OK && a.n > 0)
		*out = a.v[0];
	return status;
}

int rsmi_init(uint64_t flags) {
	answer a = {0};
	pthread_once(&once, make_locks);
	pthread_mutex_lock(&boot);
#if ABI >= 61
	const char *env = getenv(rsmi_fake_environment);
#else
	const char *env = NULL;
#endif
	journal("rsmi_init", flags, env ? strtoull(env, NULL, 10) : 0);
	int status = find("rsmi_init", &a) ? act(&a, true) : OK;
	if (status == OK && references++ == 0) {
		devices = find("devices", &a) && a.v[0] <= MOST ? (uint32_t)a.v[0] : 0;
		bool threads_only = ABI >= 61 && (flags & 0x400000000000000);
		if (!threads_only && !cleared && find("stale", &a))
			for (uint32_t i = 0; i < devices; i++)
				pthread_mutex_lock(&locks[i]);
		if (devices == 0) {
			references = 0;
			status = INIT_ERROR;
		}
	}
	pthread_mutex_unlock(&boot);
	return status;
}

int rsmi_shut_down(void) {
	answer a = {0};
	pthread_mutex_lock(&boot);
	journal("rsmi_shut_down", 0, 0);
	int status = find("rsmi_shut_down", &a) ? act(&a, true) : OK;
	if (references == 0)
		status = INIT_ERROR;
	else if (--references == 0) {
		for (uint32_t i = 0; i < devices; i++)
			while (pthread_mutex_unlock(&locks[i]) == 0)
				;
		cleared = true;
		devices = 0;
	}
	pthread_mutex_unlock(&boot);
	return status;
}

int rsmi_num_monitor_devices(uint32_t *n) {
	answer a = {0};
	journal("rsmi_num_monitor_devices", 0, 0);
	if (references == 0)
		return INIT_ERROR;
	if (find("rsmi_num_monitor_devices", &a)) {
		int status = act(&a, true);
		if (a.n > 0)
			*n = (uint32_t)a.v[0];
		return status;
	}
	*n = devices;
	return OK;
}

#define NUMBER(function, type)                                   \
	int function(uint32_t device, type *out) {                   \
		uint64_t v = (uint64_t)*out;                             \
		int status = number(#function, device, 0, &v);           \
		*out = (type)v;                                          \
		return status;                                           \
	}
#define ARGUMENT(function, type)                                 \
	int function(uint32_t device, uint32_t which, type *out) {   \
		uint64_t v = (uint64_t)*out;                             \
		int status = number(#function, device, which, &v);       \
		*out = (type)v;                                          \
		return status;                                           \
	}
// Functions that the exporter must never call: they clear counts, abort on texts of
// newer drivers, lock the device for a second, or keep /dev/kfd open.
#define FORBIDDEN(function)                                      \
	int function(uint32_t device) {                              \
		die("forbidden-" #function, device);                     \
		return OK;                                               \
	}

NUMBER(rsmi_dev_pci_id_get, uint64_t)
NUMBER(rsmi_dev_busy_percent_get, uint32_t)
NUMBER(rsmi_dev_memory_busy_percent_get, uint32_t)
NUMBER(rsmi_dev_pci_replay_counter_get, uint64_t)
ARGUMENT(rsmi_dev_power_ave_get, uint64_t)
ARGUMENT(rsmi_dev_power_cap_get, uint64_t)
ARGUMENT(rsmi_dev_memory_total_get, uint64_t)
ARGUMENT(rsmi_dev_fan_rpms_get, int64_t)
ARGUMENT(rsmi_dev_fan_speed_get, int64_t)
FORBIDDEN(rsmi_dev_xgmi_error_status)
FORBIDDEN(rsmi_dev_xgmi_error_reset)
FORBIDDEN(rsmi_dev_gpu_metrics_info_get)
FORBIDDEN(rsmi_dev_pci_throughput_get)
FORBIDDEN(rsmi_event_notification_init)

// Newer libraries open /dev/kfd if the driver reports no memory, or if the output is
// 0 after a failed read.
int rsmi_dev_memory_usage_get(uint32_t device, uint32_t which, uint64_t *out) {
	int status = number("rsmi_dev_memory_usage_get", device, which, out);
#if ABI >= 60
	uint64_t total = 0;
	if (which == 0 && *out == 0) {
		status = number("rsmi_dev_memory_total_get", device, 0, &total);
		if (total == 0)
			journal("open-dev-kfd", device, 0);
	}
#endif
	return status;
}

static int sensor(const char *function, uint32_t device, uint32_t which, int64_t *out) {
	uint64_t v = (uint64_t)*out;
	int status = number(function, device, which, &v);
	*out = (int64_t)v;
	return status;
}

int rsmi_dev_temp_metric_get(uint32_t device, uint32_t which, uint32_t metric, int64_t *out) {
	return sensor("rsmi_dev_temp_metric_get", device, which | metric << 8, out);
}

int rsmi_dev_volt_metric_get(uint32_t device, uint32_t which, uint32_t metric, int64_t *out) {
	return metric == 0 ? sensor("rsmi_dev_volt_metric_get", device, which, out) : INVALID_ARGS;
}

// Frequencies: "ok CURRENT COUNT HZ". HZ is the current frequency; the others are
// their index + 1.
static int frequency(const char *function, uint32_t device, uint64_t which, frequencies *f, answer *a) {
	int status = call(function, device, which, a);
	if (status != OK || a->n < 3)
		return status;
	memset(f, 0, sizeof *f);
	f->current = (uint32_t)a->v[0];
	f->num_supported = (uint32_t)a->v[1];
	for (size_t i = 0; i < sizeof f->frequency / sizeof f->frequency[0]; i++)
		f->frequency[i] = i == f->current ? a->v[2] : i + 1;
	return status;
}

int rsmi_dev_gpu_clk_freq_get(uint32_t device, uint32_t which, frequencies *f) {
	answer a = {0};
	return frequency("rsmi_dev_gpu_clk_freq_get", device, which, f, &a);
}

int rsmi_dev_ecc_count_get(uint32_t device, uint32_t block, error_count *c) {
	answer a = {0};
	int status = call("rsmi_dev_ecc_count_get", device, block, &a);
	if (status == OK && a.n > 1)
		c->correctable_err = a.v[0], c->uncorrectable_err = a.v[1];
	return status;
}

// Pages: "ok RESERVED PENDING UNRESERVABLE".
int rsmi_dev_memory_reserved_pages_get(uint32_t device, uint32_t *count, page_record *records) {
	answer a = {0};
	int status = call("rsmi_dev_memory_reserved_pages_get", device, 0, &a);
	if (status != OK || a.n < 3)
		return status;
	uint32_t total = (uint32_t)(a.v[0] + a.v[1] + a.v[2]), room = *count;
	if (!records || room > total)
		*count = total;
	for (uint32_t i = 0; records && i < *count; i++)
		records[i] = (page_record){i << 12, 4096, i < a.v[0] ? 0 : i < a.v[0] + a.v[1] ? 1 : 2};
	return records && room < total ? INSUFFICIENT_SIZE : OK;
}

// Range: "ok MAX MIN".
int rsmi_dev_power_cap_range_get(uint32_t device, uint32_t which, uint64_t *most, uint64_t *least) {
	answer a = {0};
	int status = call("rsmi_dev_power_cap_range_get", device, which, &a);
	if (status == OK && a.n > 1)
		*most = a.v[0], *least = a.v[1];
	return status;
}

#if ABI >= 60
NUMBER(rsmi_dev_current_socket_power_get, uint64_t)

// Power: "ok MICROWATTS TYPE".
int rsmi_dev_power_get(uint32_t device, uint64_t *power, uint32_t *type) {
	answer a = {0};
	int status = call("rsmi_dev_power_get", device, 0, &a);
	if (status == OK && a.n > 1)
		*power = a.v[0], *type = (uint32_t)a.v[1];
	return status;
}
#endif

#endif
