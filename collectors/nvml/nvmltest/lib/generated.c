// Functions that a line of functions.def describes wholly: those that read keys, and
// those that the library has and does not simulate, which are counted and obey faults.
// nvml.h is not seen here, so that all are declared alike: a device is a pointer, an
// enumeration of NVML as wide as unsigned int.
#include "simulated.h"
#include "keys.h"

int stub(enum function f, void *first); // whose first argument may be a device
int read_uints(enum function f, void *device, const int keys[2], unsigned *const out[2]);
int read_element(enum function f, void *device, int first, int last, unsigned element, unsigned *out);
int read_link(enum function f, void *device, int first, unsigned link, unsigned *out);
int read_ull(enum function f, void *device, int key, unsigned long long *out);
int read_string(enum function f, void *device, int key, char *out, unsigned length);

#define FN(name, since)
#define FUNCTION(name, call, ...)                                                                                              \
	int name(__VA_ARGS__);                                                                                                  \
	int name(__VA_ARGS__) { return call; }
#define STUB(name, since) FUNCTION(name, stub(FN_##name, first), void *first)
#define UINT(name, since, key) FUNCTION(name, read_element(FN_##name, d, K_##key, K_##key, 0, out), void *d, unsigned *out)
#define ULL(name, since, key) FUNCTION(name, read_ull(FN_##name, d, K_##key, out), void *d, unsigned long long *out)
#define BOTH(name, since, first, second)                                                                                       \
	FUNCTION(name, read_uints(FN_##name, d, (int[]){K_##first, K_##second}, (unsigned *[]){a, b}), void *d, unsigned *a, unsigned *b)
#define CHOSEN(name, since, key)                                                                                               \
	FUNCTION(name, read_element(FN_##name, d, K_##key, K_##key##_LAST, which, out), void *d, unsigned which, unsigned *out)
#define LINK(name, since, key) FUNCTION(name, read_link(FN_##name, d, K_##key, link, out), void *d, unsigned link, unsigned *out)
#define STRING(name, since, key)                                                                                               \
	FUNCTION(name, read_string(FN_##name, d, K_##key, out, length), void *d, char *out, unsigned length)
#include "functions.def"
