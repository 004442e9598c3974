// Load on a GPU through libcuda.so.1, the driver's own library, which is loaded
// when it is needed. See cuda.c.
#ifndef GPUCHECK_CUDA_H
#define GPUCHECK_CUDA_H

#include <stdint.h>

enum gpucheck_kernel { GPUCHECK_HALF, GPUCHECK_SINGLE };

struct gpucheck_result {
	int ok;
	char message[256];  // why not
	uint64_t launches;
	double operations;  // multiplications and additions
	double seconds;     // from the first launch to the end of the last
};

struct gpucheck_device {
	int ok;
	char message[256];
	char pci[32];
	int major, minor; // compute capability
};

// gpucheck_open loads the library; 0 or a message in the result. It may be called
// again.
int gpucheck_open(const char *library, char (*message)[256]);
int gpucheck_count(void);
struct gpucheck_device gpucheck_device(int ordinal);

// gpucheck_run multiplies on one GPU until gpucheck_stop, and checks the products.
// Calls for different GPUs may run at the same time.
struct gpucheck_result gpucheck_run(int ordinal, enum gpucheck_kernel kernel, const char *ptx);
void gpucheck_stop(int stop);
// gpucheck_running is how many have launched their first kernel and keep running.
int gpucheck_running(void);

#endif
