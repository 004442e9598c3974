// A libamd_smi for tests, see answer.h. Like the real library, it accepts only handles of the
// last amdsmi_init. It ends the process on a call that would crash the real library.
//
// AMDSMI=2405|2406|2407|2502|2601 is the release of the structures: 6.1, 6.2, 6.3, 6.4, and
// 7.1 to 10.1. The structures follow the members in the headers. The C compiler computed the
// sizes from these headers.
//
// Keys other than functions: "devices ok N"; "version ok A B C D", the words of
// amdsmi_version_t. The file "records.N" next to the library has the records of device N.
#ifdef AMDSMI
#include "answer.h"

enum { INVAL = 1, NOT_INIT = 32, MOST = 16, KIND_GPU = 1 };

#if AMDSMI >= 2502
enum { BOARD = 256, SERIAL = 256, NAME = 256, MAKER = 256, TEXT = 256, VERSION = 256 };
#elif AMDSMI >= 2406
enum { BOARD = 256, SERIAL = 32, NAME = 256, MAKER = 64, TEXT = 64, VERSION = 32 };
#else
enum { BOARD = 32, SERIAL = 32, NAME = 128, MAKER = 32, TEXT = 64, VERSION = 32 };
#endif

#if AMDSMI >= 2601
enum { DATE = 256, BOARD_SIZE = 1792, VBIOS_SIZE = 1568, VRAM_SIZE = 584 };
#elif AMDSMI >= 2502
enum { DATE = 32, BOARD_SIZE = 1536, VBIOS_SIZE = 1056, VRAM_SIZE = 64 };
#else
enum { DATE = 32, BOARD_SIZE = AMDSMI >= 2406 ? 768 : 384, VBIOS_SIZE = 256, VRAM_SIZE = AMDSMI >= 2406 ? 64 : 16 };
#endif

typedef struct {
	char number[BOARD], serial[SERIAL], fru[SERIAL], name[NAME], maker[MAKER];
#if AMDSMI >= 2601
	uint64_t reserved[64];
#elif AMDSMI >= 2502
	uint64_t reserved[32];
#else
	uint32_t reserved[32];
#endif
} board_info;
_Static_assert(sizeof(board_info) == BOARD_SIZE, "amdsmi_board_info_t");

typedef struct {
	char name[TEXT], date[DATE], part[TEXT], version[VERSION];
#if AMDSMI >= 2601
	char boot[256];
	uint64_t reserved[36];
#elif AMDSMI >= 2502
	uint64_t reserved[32];
#else
	uint32_t reserved[16];
#endif
} vbios_info;
_Static_assert(sizeof(vbios_info) == VBIOS_SIZE, "amdsmi_vbios_info_t");

typedef struct {
	uint32_t type;
#if AMDSMI >= 2601
	char vendor[256];
#else
	uint32_t vendor;
#endif
	uint64_t size;
#if AMDSMI >= 2407
	uint32_t width;
#endif
#if AMDSMI >= 2502
	uint64_t bandwidth;
#endif
#if AMDSMI >= 2601
	uint64_t reserved[37];
#elif AMDSMI >= 2502
	uint64_t reserved[4];
#elif AMDSMI >= 2407
	uint64_t reserved[5];
#elif AMDSMI >= 2406
	uint64_t reserved[6];
#endif
} vram_info;
_Static_assert(sizeof(vram_info) == VRAM_SIZE, "amdsmi_vram_info_t");

static char tokens[MOST]; // handles are their addresses
static uint32_t devices;
static int references;
static long first_thread;

// call is the common part of all functions. One thread must make all calls.
static int call(const char *function, const void *handle, answer *a) {
	char key[128];
	long device = handle ? (const char *)handle - tokens : 0;
	if (references > 0 && first_thread != syscall(SYS_gettid))
		die("another-thread", (uint64_t)device);
	if (handle && (device < 0 || device >= (long)devices))
		die("no-handle", (uint64_t)device);
	journal(function, (uint64_t)device, 0);
	if (references == 0)
		return NOT_INIT;
	snprintf(key, sizeof key, "%s.%ld", function, device);
	return act(a, find(key, a) || find(function, a));
}

int amdsmi_init(uint64_t flags) {
	answer a = {0};
	journal("amdsmi_init", flags, 0);
	int status = find("amdsmi_init", &a) ? act(&a, true) : OK;
	if (status == OK && references++ == 0) {
		first_thread = syscall(SYS_gettid);
		devices = find("devices", &a) && a.v[0] <= MOST ? (uint32_t)a.v[0] : 0;
	}
	return status;
}

int amdsmi_shut_down(void) {
	journal("amdsmi_shut_down", 0, 0);
	if (references == 0)
		return NOT_INIT;
	references--;
	return OK;
}

int amdsmi_get_lib_version(uint32_t *words) {
	answer a = {0};
	if (references == 0) // as releases up to 6.4 do
		return NOT_INIT;
	if (!find("version", &a))
		return INVAL;
	for (int i = 0; i < a.n; i++)
		words[i] = (uint32_t)a.v[i];
	return OK;
}

int amdsmi_get_socket_handles(uint32_t *count, void **handles) {
	if (references == 0)
		return NOT_INIT;
	if (handles)
		handles[0] = tokens;
	*count = 1;
	return OK;
}

int amdsmi_get_processor_handles(void *socket, uint32_t *count, void **handles) {
	answer a = {0};
	uint32_t room = *count;
	if (references == 0 || socket != tokens)
		return INVAL;
	*count = find("amdsmi_get_processor_handles", &a) ? (uint32_t)a.v[0] : devices;
	for (uint32_t i = 0; handles && i < devices && i < room; i++)
		handles[i] = tokens + i;
	return OK;
}

int amdsmi_get_processor_type(void *handle, int *type) {
	answer a = {0};
	int status = call("amdsmi_get_processor_type", handle, &a);
	*type = KIND_GPU;
	return status == NOT_SUPPORTED ? OK : status;
}

int amdsmi_get_gpu_device_bdf(void *handle, uint64_t *out) {
	answer a = {0};
	int status = call("amdsmi_get_gpu_device_bdf", handle, &a);
	if (status == OK && a.n > 0)
		*out = a.v[0];
	return status;
}

int amdsmi_get_gpu_bdf_id(void *handle, uint64_t *out) {
	answer a = {0};
	int status = call("amdsmi_get_gpu_bdf_id", handle, &a);
	if (status == OK && a.n > 0)
		*out = a.v[0];
	return status;
}

// Records: "ok" returns the device's file in answers that fit the buffer; "ok N" claims that N
// bytes were written.
int amdsmi_get_gpu_cper_entries(void *handle, uint32_t severities, char *data, uint64_t *size, void **headers, uint64_t *count, uint64_t *cursor) {
	answer a = {0};
	char name[64], path[PATH_MAX];
	int status = call("amdsmi_get_gpu_cper_entries", handle, &a);
	if (status != OK)
		return status;
	if (severities != 7 || *size == 0 || *count == 0)
		return INVAL;
	snprintf(name, sizeof name, "records.%ld", (long)((char *)handle - tokens));
	next_to(path, name);
	FILE *f = fopen(path, "re");
	*size = f ? fread(data, 1, *size, f) : 0;
	if (f)
		fclose(f);
	if (a.n > 0)
		*size = a.v[0];
	headers[0] = data;
	*count = 1;
	*cursor = 1;
	return OK;
}

// Field ids: "ok A B C D". With key "afids ok N" it claims N ids.
int amdsmi_get_afids_from_cper(char *record, uint32_t size, uint64_t *out, uint32_t *count) {
	answer a = {0}, n = {0};
	int status = call("amdsmi_get_afids_from_cper", NULL, &a);
	if (status != OK)
		return status;
	if (size < 128 || memcmp(record, "CPER", 4) != 0)
		die("no-record", size);
	uint32_t room = *count;
	for (int i = 0; i < a.n && (uint32_t)i < room; i++)
		out[i] = a.v[i];
	*count = find("afids", &n) ? (uint32_t)n.v[0] : (uint32_t)a.n;
	return OK;
}

int amdsmi_get_gpu_board_info(void *handle, board_info *out) {
	answer a = {0};
	int status = call("amdsmi_get_gpu_board_info", handle, &a);
	if (status != OK)
		return status;
	memset(out, 0x41, sizeof *out);
	snprintf(out->number, sizeof out->number, "102-G30211-0C");
	snprintf(out->fru, sizeof out->fru, "%s", "113-AMDG302110C");
	snprintf(out->maker, sizeof out->maker, "AMD");
	return OK;
}

int amdsmi_get_gpu_vbios_info(void *handle, vbios_info *out) {
	answer a = {0};
	int status = call("amdsmi_get_gpu_vbios_info", handle, &a);
	if (status != OK)
		return status;
	memset(out, 0x41, sizeof *out);
	snprintf(out->name, sizeof out->name, "AMD MI300X_HW_SRIOV_CVS_1VF");
	snprintf(out->date, sizeof out->date, "2024/06/05 12:13");
	snprintf(out->part, sizeof out->part, "113-M3000100-102");
	return OK;
}

int amdsmi_get_gpu_vram_info(void *handle, vram_info *out) {
	answer a = {0};
	int status = call("amdsmi_get_gpu_vram_info", handle, &a);
	if (status != OK)
		return status;
	memset(out, 0x41, sizeof *out);
	out->type = 4;
#if AMDSMI >= 2601
	snprintf(out->vendor, sizeof out->vendor, "Hynix");
#else
	out->vendor = 5;
#endif
#if AMDSMI >= 2407
	out->width = 8192;
#endif
#if AMDSMI >= 2502
	out->bandwidth = 5300;
#endif
	return OK;
}
#endif
