// Functions that the library has and does not simulate: they are counted, obey
// faults, and answer NOT_SUPPORTED. They are declared without their parameters,
// which they do not look at, except that the first may be a device; so nvml.h
// must not be seen here.
#include "simulated.h"

int stub(enum function f, void *first);

#define FN(name, driver)
#define STUB(name, driver)                                                                                                     \
	int name(void *first);                                                                                                  \
	int name(void *first) { return stub(FN_##name, first); }
#include "functions.def"
