// Load on a GPU through libcuda.so.1, the driver's own library, which is loaded when needed.
// See cuda.c.
#ifndef GPUCHECK_CUDA_H
#define GPUCHECK_CUDA_H

#include <stdbool.h>

struct gpucheck_device {
	char pci[32];
	int major; // compute capability, first number
};

// gpucheck_open loads the library and lists up to max devices. It returns how many, or -1 and a message.
int gpucheck_open(const char *library, struct gpucheck_device *devices, int max, char (*message)[256]);

// gpucheck_run multiplies on one GPU until gpucheck_stop, and returns 0, or -1 and a message.
// Calls for different GPUs may run at the same time.
int gpucheck_run(int ordinal, int element_size, const char *ptx, const char *function, char (*message)[256]);
void gpucheck_stop(bool stop);

#endif
