// Functions that one line of functions.def fully describes: functions that read keys, and
// functions that the library has but does not simulate. The latter are counted and obey faults.
// This file does not include nvml.h, so that all declarations are alike: a device is a pointer,
// an NVML enumeration has the size of unsigned int.
#include "simulated.h"
#include "keys.h"

int stub(enum function f, void *first); // first may be a device
int read_value(enum function f, void *device, int key, int end, void *out, unsigned size, bool is_text);
int read_two(enum function f, void *device, int first, int second, unsigned *a, unsigned *b);
int read_link(enum function f, void *device, int first, unsigned link, unsigned *out);

#define FN(name, since)
#define FUNCTION(name, call, ...)                                                                                              \
	int name(__VA_ARGS__);                                                                                                  \
	int name(__VA_ARGS__) { return call; }
#define STUB(name, since) FUNCTION(name, stub(FN_##name, first), void *first)
#define UINT(name, since, key) FUNCTION(name, read_value(FN_##name, d, K_##key, K_COUNT, out, 4, false), void *d, unsigned *out)
#define ULL(name, since, key) FUNCTION(name, read_value(FN_##name, d, K_##key, K_COUNT, out, 8, false), void *d, unsigned long long *out)
#define BOTH(name, since, first, second)                                                                                       \
	FUNCTION(name, read_two(FN_##name, d, K_##first, K_##second, a, b), void *d, unsigned *a, unsigned *b)
#define CHOSEN(name, since, key)                                                                                               \
	FUNCTION(name, read_value(FN_##name, d, K_##key + (int)(which & 0xffff), K_##key##_LAST + 1, out, 4, false), void *d, unsigned which, unsigned *out)
#define LINK(name, since, key) FUNCTION(name, read_link(FN_##name, d, K_##key, link, out), void *d, unsigned link, unsigned *out)
#define STRING(name, since, key)                                                                                               \
	FUNCTION(name, read_value(FN_##name, d, K_##key, K_COUNT, out, length, true), void *d, char *out, unsigned length)
#include "functions.def"
