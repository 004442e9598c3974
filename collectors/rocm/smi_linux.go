//go:build linux && cgo

package rocm

/*
#cgo CFLAGS: -std=c11 -Wall -Wextra
#include <stdint.h>

// The signatures of librocm_smi64's functions, whose addresses are only known at
// run time. Prototypes are those of rocm_smi.h, ROCm 5.0 to 7.x; no header of ROCm
// is needed to build this. None of them has a struct: layouts differ by release.
enum { SIGNATURE_U32, SIGNATURE_U64, SIGNATURE_U64_OF, SIGNATURE_U64_2_OF, SIGNATURE_METRIC, SIGNATURES };

static int smi_init(void *f, uint64_t flags) { return ((int (*)(uint64_t))f)(flags); }
static int smi_shut_down(void *f) { return ((int (*)(void))f)(); }
static int smi_num_devices(void *f, uint32_t *n) { return ((int (*)(uint32_t *))f)(n); }

// smi_call makes one call for a device. Signed outputs have the same layout as
// unsigned ones.
static int smi_call(void *f, uint32_t signature, uint32_t device, uint32_t a, uint32_t b, uint64_t *out) {
	uint32_t small = UINT32_MAX;
	int status;
	switch (signature) {
	case SIGNATURE_U32:
		status = ((int (*)(uint32_t, uint32_t *))f)(device, &small);
		if (small != UINT32_MAX)
			out[0] = small;
		return status;
	case SIGNATURE_U64:
		return ((int (*)(uint32_t, uint64_t *))f)(device, out);
	case SIGNATURE_U64_OF:
		return ((int (*)(uint32_t, uint32_t, uint64_t *))f)(device, a, out);
	case SIGNATURE_U64_2_OF:
		return ((int (*)(uint32_t, uint32_t, uint64_t *, uint64_t *))f)(device, a, &out[0], &out[1]);
	default:
		return ((int (*)(uint32_t, uint32_t, uint32_t, uint64_t *))f)(device, a, b, out);
	}
}
*/
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/dl"
)

// smiLibrary is one loaded librocm_smi64 and the functions found in it. It is
// never unloaded: loading the same file again yields the same copy, and C++
// libraries do not survive dlclose reliably.
type smiLibrary struct {
	path     string
	function [smiFunctionCount]unsafe.Pointer // nil: the library lacks it
}

// The Go side of SIGNATURES.
const _ = -(uint(smiSignatures) ^ C.SIGNATURES)

// loadSMI loads the first of names and looks every function up.
// Errors: collector.ErrNotLoaded, wrapped, if there is no such library or it lacks
// what nothing works without.
func loadSMI(names []string) (*smiLibrary, error) {
	l, err := dl.Open(names)
	if err != nil {
		return nil, notLoaded("ROCm SMI", names, err)
	}
	lib := &smiLibrary{path: l.Path()}
	for f, d := range smiFunctionTable {
		p, err := l.Lookup(d.name)
		if err == nil {
			lib.function[f] = p
			continue
		}
		if slices.Contains(smiRequired(), smiFunction(f)) {
			return nil, errors.Join(fmt.Errorf("load ROCm SMI: %w: %w", collector.ErrNotLoaded, err), l.Close())
		}
	}
	return lib, nil
}

// has reports whether the library has the function.
func (l *smiLibrary) has(f smiFunction) bool { return l.function[f] != nil }

// start is rsmi_init. It may take seconds, or hang.
func (l *smiLibrary) start(flags uint64) smiStatus {
	return smiStatus(C.smi_init(l.function[smiInit], C.uint64_t(flags)))
}

// stop is rsmi_shut_down. Calls for devices must have ended.
func (l *smiLibrary) stop() smiStatus { return smiStatus(C.smi_shut_down(l.function[smiShutDown])) }

// devices is how many there are since the last start.
func (l *smiLibrary) devices() (uint32, smiStatus) {
	var n C.uint32_t
	s := smiStatus(C.smi_num_devices(l.function[smiNumDevices], &n))
	return uint32(n), s
}

// call makes one call for a device. out keeps smiUnset if the function writes
// nothing. It allocates nothing if out is on the heap.
func (l *smiLibrary) call(device uint32, q smiAsk, out *[2]uint64) smiStatus {
	*out = [2]uint64{smiUnset, smiUnset}
	d := &smiFunctionTable[q.function]
	return smiStatus(C.smi_call(l.function[q.function], C.uint32_t(d.signature), C.uint32_t(device), C.uint32_t(q.a), C.uint32_t(q.b),
		(*C.uint64_t)(unsafe.Pointer(&out[0]))))
}
