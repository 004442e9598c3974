// Field values: the value of each ID (NVML_FI_* in nvml.h).
#include "fake.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum scope { WHOLE, LINK, LINK_OR_ALL };

// A run of IDs from first to last, with values in elements from key, step apart.
struct run {
	int first, last, key, step;
	enum scope scope; // scopeId selects among the elements
	nvmlValueType_t type;
};

#define ULL NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
#define UI NVML_VALUE_TYPE_UNSIGNED_INT
#define SI NVML_VALUE_TYPE_SIGNED_INT

static const struct run runs[] = {
	{1, 1, K_ECC_CURRENT, 0, WHOLE, UI},
	{2, 2, K_ECC_PENDING, 0, WHOLE, UI},
	{3, 4, K_ECC, 2, WHOLE, ULL},     // volatile: corrected, uncorrected
	{5, 6, K_ECC + 1, 2, WHOLE, ULL}, // aggregate
	{7, 16, K_ECC_AT, 2, WHOLE, ULL}, // volatile of L1, L2, device, registers, texture
	{17, 17, K_ECC_AT + 26, 0, WHOLE, ULL}, // CBU
	{18, 27, K_ECC_AT + 1, 2, WHOLE, ULL},
	{28, 28, K_ECC_AT + 27, 0, WHOLE, ULL},
	{29, 30, K_RETIRED, 1, WHOLE, ULL},
	{31, 31, K_RETIRED_PENDING, 0, WHOLE, ULL},
	{32, 37, K_NVLINK_CRC_FLIT, 1, WHOLE, ULL},
	{39, 44, K_NVLINK_CRC_DATA, 1, WHOLE, ULL},
	{46, 51, K_NVLINK_REPLAY, 1, WHOLE, ULL},
	{53, 58, K_NVLINK_RECOVERY, 1, WHOLE, ULL},
	{74, 79, K_VIOLATION, 1, WHOLE, ULL},
	{80, 81, K_VIOLATION + 10, 1, WHOLE, ULL},
	{82, 82, K_TEMPERATURE_MEMORY, 0, WHOLE, UI},
	{83, 83, K_ENERGY, 0, WHOLE, ULL},
	{84, 89, K_NVLINK_SPEED, 1, WHOLE, UI},
	{90, 90, K_NVLINK_SPEED, 0, WHOLE, UI},
	{91, 91, K_NVLINK_COUNT, 0, WHOLE, UI},
	{92, 93, K_RETIRED_PENDING, 0, WHOLE, ULL},
	{94, 94, K_PCIE_REPLAY, 0, WHOLE, ULL},
	{95, 95, K_PCIE_ROLLOVER, 0, WHOLE, ULL},
	{96, 101, K_NVLINK_CRC_FLIT + 6, 1, WHOLE, ULL},
	{102, 107, K_NVLINK_CRC_DATA + 6, 1, WHOLE, ULL},
	{108, 113, K_NVLINK_REPLAY + 6, 1, WHOLE, ULL},
	{114, 119, K_NVLINK_RECOVERY + 6, 1, WHOLE, ULL},
	{132, 137, K_NVLINK_SPEED + 6, 1, WHOLE, UI},
	{138, 138, K_NVLINK_TX, 0, LINK_OR_ALL, ULL},
	{139, 139, K_NVLINK_RX, 0, LINK_OR_ALL, ULL},
	{140, 140, K_NVLINK_RAW_TX, 0, LINK_OR_ALL, ULL},
	{141, 141, K_NVLINK_RAW_RX, 0, LINK_OR_ALL, ULL},
	{142, 145, K_REMAPPED, 1, WHOLE, UI},
	{146, 146, K_NVLINK_REMOTE_LINK, 0, LINK, UI},
	{147, 147, K_SWITCH_LINKS, 0, WHOLE, UI},
	{148, 159, K_NVLINK_ECC_DATA, 1, WHOLE, ULL},
	{161, 161, K_NVLINK_REPLAY, 0, LINK, ULL},
	{162, 162, K_NVLINK_RECOVERY, 0, LINK, ULL},
	{163, 163, K_NVLINK_CRC_FLIT, 0, LINK, ULL},
	{164, 164, K_NVLINK_SPEED, 0, LINK, UI},
	{165, 165, K_NVLINK_STATE, 0, LINK, UI},
	{167, 167, K_NVLINK_POWER_STATE, 0, LINK, UI},
	{169, 169, K_PCIE_ERRORS + 11, 0, WHOLE, ULL},
	{173, 183, K_PCIE_ERRORS, 1, WHOLE, ULL},
	{185, 185, K_POWER_AVERAGE, 0, WHOLE, UI},
	{186, 186, K_POWER_INSTANT, 0, WHOLE, UI},
	{187, 187, K_POWER_MIN, 0, WHOLE, UI},
	{188, 188, K_POWER_MAX, 0, WHOLE, UI},
	{189, 189, K_POWER_DEFAULT, 0, WHOLE, UI},
	{190, 190, K_POWER_ENFORCED, 0, WHOLE, UI},
	{191, 191, K_ENERGY, 0, WHOLE, ULL},
	{192, 192, K_POWER_LIMIT, 0, WHOLE, UI},
	{193, 196, K_TLIMIT, 1, WHOLE, SI},
	{197, 197, K_PCIE_TX_BYTES, 0, WHOLE, ULL},
	{198, 198, K_PCIE_RX_BYTES, 0, WHOLE, ULL},
	{201, 219, K_NVLINK_5, MAX_LINKS, LINK_OR_ALL, ULL},
	{220, 220, K_NVLINK_5 + 19 * MAX_LINKS, 0, LINK, ULL}, // a rate has no sum
	{221, 221, K_NVLINK_5 + 20 * MAX_LINKS, 0, LINK_OR_ALL, ULL},
	{222, 222, K_NVLINK_5 + 21 * MAX_LINKS, 0, LINK, ULL},
	{230, 230, K_RECOVERY_ACTION, 0, WHOLE, UI},
	{235, 250, K_NVLINK_FEC, MAX_LINKS, LINK_OR_ALL, ULL},
	{251, 268, K_SMOOTHING, 1, WHOLE, UI},
	{269, 271, K_VIOLATION + 6, 1, WHOLE, ULL}, // thermal by software, thermal by hardware, power brake
	{301, 302, K_REMAPPED_INACTIVE, 1, WHOLE, UI},
};

// Totals over links.
static const struct {
	int id, key;
} totals[] = {
	{38, K_NVLINK_CRC_FLIT}, {45, K_NVLINK_CRC_DATA}, {52, K_NVLINK_REPLAY}, {59, K_NVLINK_RECOVERY}, {160, K_NVLINK_ECC_DATA},
};

static nvmlReturn_t total(const struct call *c, int key, double *out) {
	unsigned links;
	nvmlReturn_t r = get_uint(c, K_NVLINK_COUNT, &links);
	*out = 0;
	for (unsigned i = 0; i < links && i < MAX_LINKS && r == NVML_SUCCESS; i++) {
		double v = 0;
		r = value(c, key + (int)i, &v);
		*out += v;
	}
	return r;
}

static nvmlReturn_t from_run(const struct call *c, const struct run *run, const nvmlFieldValue_t *f, double *out) {
	int key = run->key + ((int)f->fieldId - run->first) * run->step;
	unsigned count = 0;
	if (run->scope == WHOLE)
		return value(c, key, out);
	nvmlReturn_t r = get_uint(c, K_NVLINK_COUNT, &count);
	if (r != NVML_SUCCESS)
		return r;
	if (run->scope == LINK_OR_ALL && f->scopeId == ~0u)
		return total(c, key, out);
	return f->scopeId < count ? value(c, key + (int)f->scopeId, out) : NVML_ERROR_INVALID_ARGUMENT;
}

// newest returns a field's number since CUDA 13.1. In drivers 575 and 580, 269 to 273 came
// before 251 to 268.
static int newest(const struct call *c, int id) {
	int branch = atoi(c->s->driver);
	if (branch < 575 || branch >= 590 || id < 251 || id > 273)
		return id;
	return id <= 255 ? id + 18 : id - 5;
}

static nvmlReturn_t look_up(const struct call *c, const nvmlFieldValue_t *asked, double *out, nvmlValueType_t *type) {
	int id = (int)asked->fieldId;
	nvmlFieldValue_t there = *asked, *f = &there;
	if (id <= 0 || id >= c->s->fields || id >= 320)
		return NVML_ERROR_INVALID_ARGUMENT;
	f->fieldId = (unsigned)(id = newest(c, id));
	for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
		if (id >= runs[i].first && id <= runs[i].last) {
			*type = runs[i].type;
			return from_run(c, &runs[i], f, out);
		}
	for (size_t i = 0; i < sizeof totals / sizeof *totals; i++)
		if (id == totals[i].id)
			return total(c, totals[i].key, out);
	return NVML_ERROR_NOT_SUPPORTED;
}

// since_1970 returns the simulated time as nvml.h defines it, in microseconds since 1970. It is
// the system time unless a test has frozen or advanced the simulated time.
static long long since_1970(const struct call *c) {
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static uint64_t epoch; // of the simulated clock when zero was set
	static long long zero;
	long long now = (long long)(c->now * 1e6);
	struct timespec t;
	pthread_mutex_lock(&lock);
	if (!zero || (!c->s->frozen && c->s->epoch != epoch)) {
		clock_gettime(CLOCK_REALTIME, &t);
		zero = (long long)t.tv_sec * 1000000 + t.tv_nsec / 1000 - now;
		epoch = c->s->epoch;
	}
	long long out = zero + now;
	pthread_mutex_unlock(&lock);
	return out;
}

void field_value(const struct call *c, nvmlFieldValue_t *f) {
	double v = 0;
	nvmlValueType_t type = ULL;
	f->nvmlReturn = look_up(c, f, &v, &type);
	f->timestamp = since_1970(c);
	f->latencyUsec = 0;
	f->valueType = type;
	memset(&f->value, 0, sizeof f->value);
	if (f->nvmlReturn != NVML_SUCCESS)
		return;
	switch (type) {
	case UI: f->value.uiVal = (unsigned)(long long)v; break;
	case SI: f->value.siVal = (int)v; break;
	default: f->value.ullVal = v >= 18446744073709551615.0 ? ~0ULL : v < 0 ? (unsigned long long)(long long)v : (unsigned long long)v; break;
	}
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t d, int count, nvmlFieldValue_t *values) {
	GPU(nvmlDeviceGetFieldValues, d);
	if (!values || count < 0)
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	for (int i = 0; i < count; i++)
		field_value(&c, &values[i]);
	LEAVE(NVML_SUCCESS);
}
