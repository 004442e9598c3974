//go:build cgo

#define _POSIX_C_SOURCE 200809L

#include "smi.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STATUS_SUCCESS = 0, STATUS_UNEXPECTED_DATA = 15 };

// Every struct that the library fills has this much room, because newer versions
// may write more than the ones that we know.
enum { ROOM = 64 * 1024 };

// rsmi_frequencies_t. With ROCm 6.0 the number of levels went from 32 to 33, and
// has_deep_sleep came first.
struct frequencies5 {
	uint32_t num_supported, current;
	uint64_t frequency[32];
};
struct frequencies6 {
	_Bool has_deep_sleep;
	uint32_t num_supported, current;
	uint64_t frequency[33];
};
_Static_assert(sizeof(struct frequencies5) == 264, "rsmi_frequencies_t, ROCm 5");
_Static_assert(sizeof(struct frequencies6) == 280, "rsmi_frequencies_t, ROCm 6 and 7");
_Static_assert(offsetof(struct frequencies6, current) == 8, "rsmi_frequencies_t, ROCm 6 and 7");

// rsmi_error_count_t
struct error_count {
	uint64_t correctable, uncorrectable;
};
_Static_assert(sizeof(struct error_count) == 16, "rsmi_error_count_t");

// rsmi_retired_page_record_t
struct page_record {
	uint64_t address, size;
	uint32_t status;
};
_Static_assert(sizeof(struct page_record) == 24, "rsmi_retired_page_record_t");

union room {
	struct frequencies5 f5;
	struct frequencies6 f6;
	struct error_count errors;
	unsigned char bytes[ROOM];
};

int smi_init(const struct smi_table *t, uint64_t flags) {
	return ((int (*)(uint64_t))t->function[SMI_INIT])(flags);
}

int smi_shut_down(const struct smi_table *t) {
	return ((int (*)(void))t->function[SMI_SHUT_DOWN])();
}

int smi_num_devices(const struct smi_table *t, uint32_t *count) {
	return ((int (*)(uint32_t *))t->function[SMI_NUM_DEVICES])(count);
}

int smi_pci_id(const struct smi_table *t, uint32_t device, uint64_t *id) {
	return ((int (*)(uint32_t, uint64_t *))t->function[SMI_PCI_ID])(device, id);
}

// levels takes the frequency of the current level, and the highest.
static int levels(const struct smi_table *t, const union room *r, uint64_t *current, uint64_t *highest) {
	const uint64_t *hertz = t->rocm6 ? r->f6.frequency : r->f5.frequency;
	size_t most = (t->rocm6 ? sizeof r->f6.frequency : sizeof r->f5.frequency) / sizeof *hertz;
	uint32_t at = t->rocm6 ? r->f6.current : r->f5.current;
	uint32_t count = t->rocm6 ? r->f6.num_supported : r->f5.num_supported;
	if (count == 0 || count > most)
		return SMI_STATUS_NO_VALUE;
	// Where no level is current the library says 2³²−1, or one beyond the last.
	if (at < count)
		*current = hertz[at];
	*highest = 0;
	for (uint32_t i = 0; i < count; i++)
		if (hertz[i] > *highest)
			*highest = hertz[i];
	return STATUS_SUCCESS;
}

// busy believes a 0 only where the file says it. Where the file is empty or its
// read fails, as during a reset, the library says success and 0.
static int busy(int descriptor, uint64_t value) {
	char digit;
	if (value != 0)
		return STATUS_SUCCESS;
	if (pread(descriptor, &digit, 1, 0) != 1 || digit != '0')
		return SMI_STATUS_NO_VALUE;
	return STATUS_SUCCESS;
}

// bad_pages counts pages by state. Their number is asked for first, as the list
// grows with the age of the board; pages that come in between are left out.
static int bad_pages(void *function, uint32_t device, uint64_t count[3]) {
	int (*get)(uint32_t, uint32_t *, struct page_record *) = (int (*)(uint32_t, uint32_t *, struct page_record *))function;
	uint32_t n = 0;
	int status = get(device, &n, NULL);
	if (status != STATUS_SUCCESS)
		return status;
	count[0] = count[1] = count[2] = 0;
	if (n == 0)
		return STATUS_SUCCESS;
	struct page_record *pages = calloc(n, sizeof *pages);
	if (pages == NULL)
		return SMI_STATUS_NO_VALUE;
	uint32_t got = n;
	status = get(device, &got, pages);
	for (uint32_t i = 0; status == STATUS_SUCCESS && i < got && i < n; i++) {
		if (pages[i].status > 2)
			status = STATUS_UNEXPECTED_DATA;
		else
			count[pages[i].status]++;
	}
	free(pages);
	return status;
}

typedef int (*get_u32)(uint32_t, uint32_t *);
typedef int (*get_u64)(uint32_t, uint64_t *);
typedef int (*get_u64_of)(uint32_t, uint32_t, uint64_t *);
typedef int (*get_i64_of)(uint32_t, uint32_t, int64_t *);
typedef int (*get_metric)(uint32_t, uint32_t, uint32_t, int64_t *);
typedef int (*get_u64_2_of)(uint32_t, uint32_t, uint64_t *, uint64_t *);
typedef int (*get_room_of)(uint32_t, uint32_t, void *);

// UNSET is what an output holds before the call. Some versions answer success
// without having written it, and newer ones open /dev/kfd where they find a 0 in
// it after a read that failed.
#define UNSET UINT64_MAX

static int ask(const struct smi_table *t, uint32_t device, const struct smi_ask *q, uint64_t *v) {
	void *f = q->function < SMI_FUNCTIONS ? t->function[q->function] : NULL;
	if (f == NULL)
		return SMI_STATUS_NO_SYMBOL;
	union room r;
	uint32_t small = UINT32_MAX;
	int64_t number = -1;
	int status;
	v[0] = UNSET;
	switch (q->function) {
	case SMI_BUSY:
	case SMI_MEMORY_BUSY:
		status = ((get_u32)f)(device, &small);
		v[0] = small == UINT32_MAX ? UNSET : small;
		if (status == STATUS_SUCCESS && q->function == SMI_BUSY)
			status = busy((int)q->argument, v[0]);
		break;
	case SMI_PCI_REPLAY:
	case SMI_SOCKET_POWER:
		status = ((get_u64)f)(device, &v[0]);
		break;
	case SMI_POWER_CAP_RANGE:
		v[1] = UNSET;
		status = ((get_u64_2_of)f)(device, q->argument, &v[0], &v[1]);
		break;
	case SMI_POWER_AVERAGE:
	case SMI_POWER_CAP:
	case SMI_MEMORY_USAGE:
	case SMI_MEMORY_TOTAL:
		status = ((get_u64_of)f)(device, q->argument, &v[0]);
		break;
	case SMI_FAN_RPM:
	case SMI_FAN_SPEED:
		status = ((get_i64_of)f)(device, q->argument, &number);
		v[0] = (uint64_t)number;
		break;
	case SMI_TEMPERATURE:
	case SMI_VOLTAGE:
		number = INT64_MIN;
		status = ((get_metric)f)(device, q->argument & 0xff, q->argument >> 8, &number);
		v[0] = number == INT64_MIN ? UNSET : (uint64_t)number;
		break;
	case SMI_CLOCK:
		memset(&r, 0, sizeof r.f6);
		status = ((get_room_of)f)(device, q->argument, &r);
		if (status == STATUS_SUCCESS)
			return levels(t, &r, &v[0], &v[1]);
		break;
	case SMI_ECC_COUNT:
		r.errors.correctable = r.errors.uncorrectable = UNSET;
		status = ((get_room_of)f)(device, q->argument, &r);
		v[0] = r.errors.correctable;
		v[1] = r.errors.uncorrectable;
		break;
	case SMI_BAD_PAGES:
		status = bad_pages(f, device, v);
		break;
	default:
		return SMI_STATUS_NO_SYMBOL;
	}
	if (status == STATUS_SUCCESS && v[0] == UNSET)
		return SMI_STATUS_NO_VALUE;
	return status;
}

static uint64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void smi_batch(const struct smi_table *t, uint32_t device, const struct smi_ask *asks,
	struct smi_answer *answers, uint32_t n) {
	uint64_t begin = now();
	for (uint32_t i = 0; i < n; i++) {
		answers[i].status = ask(t, device, &asks[i], answers[i].value);
		uint64_t end = now();
		answers[i].nanos = end - begin;
		begin = end;
	}
}
