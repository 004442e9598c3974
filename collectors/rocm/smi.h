// Trampolines for librocm_smi64, whose functions are only known at run time.
// Prototypes, structs and numbers are those of rocm_smi.h, ROCm 5.0 to 7.x; no
// header of ROCm is needed to build this.
#ifndef WARPGAUGE_ROCM_SMI_H
#define WARPGAUGE_ROCM_SMI_H

#include <stdint.h>

// The functions that are called, by index into smi_table. The order is that of
// the table of names in lib_linux.go.
enum smi_function {
	SMI_INIT,
	SMI_SHUT_DOWN,
	SMI_NUM_DEVICES,
	SMI_PCI_ID,
	SMI_POWER, // never called: it tells ROCm 6 from ROCm 5
	SMI_TEMPERATURE,
	SMI_POWER_AVERAGE,
	SMI_SOCKET_POWER,
	SMI_POWER_CAP,
	SMI_POWER_CAP_RANGE,
	SMI_BUSY,
	SMI_MEMORY_BUSY,
	SMI_MEMORY_USAGE,
	SMI_MEMORY_TOTAL,
	SMI_CLOCK,
	SMI_PCI_REPLAY,
	SMI_ECC_COUNT,
	SMI_BAD_PAGES,
	SMI_FAN_RPM,
	SMI_FAN_SPEED,
	SMI_VOLTAGE,
	SMI_FUNCTIONS
};

// smi_table is what dlsym found. An entry may be NULL.
struct smi_table {
	void *function[SMI_FUNCTIONS];
	uint32_t rocm6; // structs are those of ROCm 6.0 and later
	uint32_t pad;
};
_Static_assert(sizeof(struct smi_table) == SMI_FUNCTIONS * sizeof(void *) + 8, "shared with Go");

// smi_ask is one reading: a function from SMI_TEMPERATURE on, and what it wants
// to know: kind of memory, clock or block; sensor + 256 × metric of
// SMI_TEMPERATURE; a descriptor of gpu_busy_percent for SMI_BUSY.
struct smi_ask {
	uint32_t function;
	uint32_t argument;
};
_Static_assert(sizeof(struct smi_ask) == 8, "shared with Go");

// smi_answer is what came back. Values are raw, in the library's units:
//   SMI_CLOCK           Hz of the current level, 2⁶⁴−1 for none; of the highest
//   SMI_POWER_CAP_RANGE most and least, µW
//   SMI_ECC_COUNT       correctable, uncorrectable
//   SMI_BAD_PAGES       retired, pending, failed
// The others have one value.
struct smi_answer {
	uint64_t value[3];
	uint64_t nanos; // how long the call took
	int32_t status;
	uint32_t pad;
};
_Static_assert(sizeof(struct smi_answer) == 40, "shared with Go");

// Statuses of our own: the library lacks the function; it says success, and
// nothing more.
enum { SMI_STATUS_NO_SYMBOL = -1, SMI_STATUS_NO_VALUE = -2 };

int smi_init(const struct smi_table *t, uint64_t flags);
int smi_shut_down(const struct smi_table *t);
int smi_num_devices(const struct smi_table *t, uint32_t *count);
int smi_pci_id(const struct smi_table *t, uint32_t device, uint64_t *id);

// smi_batch makes n calls for one device, in order, on the calling thread.
void smi_batch(const struct smi_table *t, uint32_t device, const struct smi_ask *asks,
	struct smi_answer *answers, uint32_t n);

#endif
