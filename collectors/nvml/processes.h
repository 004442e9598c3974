// Processes on a GPU or one of its MIG instances: who they are, what memory they
// have, how busy they keep it.
//
// NVML's functions are called by address and its structs are declared in
// processes.c as far as they are used, after nvml.h of NVML 13.3 (go-nvml
// v0.13.3-0).
#ifndef WARPGAUGE_NVML_PROCESSES_H
#define WARPGAUGE_NVML_PROCESSES_H

#include <stdint.h>

// The calls: three lists, and how busy.
enum wg_process_call {
	WG_COMPUTE,  // nvmlDeviceGetComputeRunningProcesses_v3 or _v2
	WG_GRAPHICS, // nvmlDeviceGetGraphicsRunningProcesses_v3 or _v2
	WG_MPS,      // nvmlDeviceGetMPSComputeRunningProcesses_v3 or _v2
	WG_LISTS,
	WG_BUSY = WG_LISTS, // nvmlDeviceGetProcessesUtilizationInfo or nvmlDeviceGetProcessUtilization
	WG_PROCESS_CALLS
};

// WG_MOST_PROCESSES is how many are asked for at most.
enum { WG_MOST_PROCESSES = 16384 };

// wg_process is a process; it is there once, however many lists name it.
struct wg_process {
	double memory;  // bytes, NaN where it is not available
	uint32_t pid;   // never 0
	uint32_t lists; // bit 1 << call of each list that names it
};

// wg_busy is a sample of a process, as the driver has it.
struct wg_busy {
	uint64_t stamp; // µs
	uint32_t pid;
	uint32_t percent; // of the time in which its kernels ran; over 100 where it is garbage
};

// wg_process_answer is what came of wg_processes_ask. It may tell of more than
// there was room for; then the caller makes room and asks again.
struct wg_process_answer {
	int32_t code[WG_PROCESS_CALLS]; // of NVML; NVML_ERROR_FUNCTION_NOT_FOUND where the library lacks it
	uint32_t processes;             // that were put
	uint32_t nameless;              // with the number 0, which are not put
	uint32_t samples;
	uint32_t more;                  // there was no room for all
	uint64_t made[WG_PROCESS_CALLS], nanos[WG_PROCESS_CALLS];
};

// wg_processes is who is asked, and by what.
struct wg_processes;

// wg_processes_new returns NULL without memory. dev is an nvmlDevice_t, of a MIG
// device, too. outside leaves out the processes that are in an instance. Functions
// may be NULL; of the two that tell how busy, the older is taken where the newer
// does not serve the device.
struct wg_processes *wg_processes_new(uint64_t dev, int outside, void *compute, void *graphics, void *mps, void *busy, void *busy_old);
void wg_processes_free(struct wg_processes *p);

// wg_processes_ask asks for all lists and then for samples newer than since, and
// puts what it gets into processes and samples. It ends early where an answer
// concerns the whole GPU or driver; that is the last code.
void wg_processes_ask(struct wg_processes *p, uint64_t since, struct wg_process *processes, uint32_t nprocesses,
		      struct wg_busy *samples, uint32_t nsamples, struct wg_process_answer *answer);

#endif
