//go:build linux && cgo

package nvml

/*
#include <stdint.h>

// nvmlDeviceGetNvLinkState of nvml.h of NVML 13: handle, link, and an enum of int
// size, 1 for an active link. The most links that a GPU can have by that header
// are 18 (NVML_NVLINK_MAX_LINKS); asking for more costs an error each.
typedef int (*nvml_link_state)(void *, unsigned int, int *);

struct link_states {
	uint64_t active, known;
};

enum { most_links = 18 };

// ask_links asks for the state of each link. By value, as ask_p2p.
static struct link_states ask_links(void *f, uintptr_t dev)
{
	struct link_states s = {0, 0};

	for (unsigned int link = 0; link < most_links; link++) {
		int active = 0;

		if (((nvml_link_state)f)((void *)dev, link, &active) != 0)
			continue;
		s.known |= UINT64_C(1) << link;
		if (active == 1)
			s.active |= UINT64_C(1) << link;
	}
	return s;
}
*/
import "C"

import "warpgauge/pkg/dl"

// linkStates are the NVLinks of a GPU as bit masks.
type linkStates struct {
	active uint64
	known  uint64 // of the others nothing is known, or there are none
}

// linkQuestion returns what asks for the state of a GPU's NVLinks, and false where
// the library has no answer. The handle is an nvmlDevice_t.
func linkQuestion(l *dl.Library, gpu uintptr) (ask func() linkStates, supported bool) {
	f, err := l.Lookup("nvmlDeviceGetNvLinkState")
	if err != nil {
		return nil, false
	}
	return func() linkStates {
		s := C.ask_links(f, C.uintptr_t(gpu))
		return linkStates{uint64(s.active), uint64(s.known)}
	}, true
}
