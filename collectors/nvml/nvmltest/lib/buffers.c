// Samples that the driver buffers: the newest 120 of power, one per 20 ms, and the newest 100
// of utilisation, six per second. Clocks have no buffer, as on most boards. A sample is the
// value at its time, while drivers average.
#include "fake.h"

// How long before the script the driver was loaded, in microseconds.
static const unsigned long long before = 1000000000;

static int kept_key(unsigned type) {
	switch (type) {
	case NVML_TOTAL_POWER_SAMPLES: return K_POWER;
	case NVML_GPU_UTILIZATION_SAMPLES: return K_UTIL_GPU;
	case NVML_MEMORY_UTILIZATION_SAMPLES: return K_UTIL_MEMORY;
	case NVML_ENC_UTILIZATION_SAMPLES: return K_UTIL_ENCODER;
	case NVML_DEC_UTILIZATION_SAMPLES: return K_UTIL_DECODER;
	}
	return -1;
}

nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t d, nvmlSamplingType_t type, unsigned long long since, nvmlValueType_t *value_type,
				  unsigned *count, nvmlSample_t *samples) {
	GPU(nvmlDeviceGetSamples, d);
	int key = kept_key(type);
	unsigned mig = 0;
	if (!count || !value_type || (samples && *count == 0))
		LEAVE(NVML_ERROR_INVALID_ARGUMENT);
	if (key < 0 || (key != K_POWER && get_uint(&c, K_MIG_MODE, &mig) == NVML_SUCCESS && mig))
		LEAVE(NVML_ERROR_NOT_SUPPORTED);
	unsigned long long step = key == K_POWER ? 20000 : 166667, most = key == K_POWER ? 120 : 100;
	unsigned long long last = (unsigned long long)(c.now * 1e6 + before) / step, first = last > most ? last - most + 1 : 1;
	if (since / step + 1 > first)
		first = since / step + 1;
	*value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
	unsigned n = 0;
	nvmlReturn_t r = NVML_SUCCESS;
	for (unsigned long long i = first; i <= last && r == NVML_SUCCESS && (!samples || n < *count); i++, n++) {
		nvmlSample_t s = {.timeStamp = i * step};
		c.now = s.timeStamp > before ? (double)(s.timeStamp - before) / 1e6 : 0;
		r = get_uint(&c, key, &s.sampleValue.uiVal);
		if (samples)
			samples[n] = s;
	}
	*count = n;
	LEAVE(r != NVML_SUCCESS ? r : n == 0 ? NVML_ERROR_NOT_FOUND : NVML_SUCCESS);
}
