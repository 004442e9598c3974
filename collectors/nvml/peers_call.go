//go:build linux && cgo

package nvml

/*
#include <stdint.h>

// nvmlDeviceGetP2PStatus of nvml.h of NVML 13: two handles, which are pointers,
// and two enums of int size. NVML_P2P_CAPS_INDEX_NVLINK is 2.
typedef int (*nvml_p2p)(void *, void *, int, int *);

_Static_assert(sizeof(enum {nvml_p2p_ok}) == sizeof(int), "nvmlGpuP2PStatus_t");

// ask_p2p returns the status, which is not negative, or minus the error. By value:
// what go-nvml returns through a pointer is an allocation for each call.
static int ask_p2p(void *f, uintptr_t a, uintptr_t b)
{
	int status = 0;
	int ret = ((nvml_p2p)f)((void *)a, (void *)b, 2, &status);
	return ret != 0 ? -ret : status;
}
*/
import "C"

import "warpgauge/pkg/dl"

// p2pQuestion returns what asks whether GPU a reaches b over NVLink, and false
// where the library has no answer. The handles are nvmlDevice_t.
func p2pQuestion(l *dl.Library, a, b uintptr) (ask func() (status int, ok bool), supported bool) {
	f, err := l.Lookup("nvmlDeviceGetP2PStatus")
	if err != nil {
		return nil, false
	}
	return func() (int, bool) {
		status := int(C.ask_p2p(f, C.uintptr_t(a), C.uintptr_t(b)))
		return min(status, len(linkStatuses())-1), status >= 0 // what is not known yet is "Unknown"
	}, true
}
