//go:build linux && cgo

package dcgm

// #include <stdlib.h>
// #include "calls_linux.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// peersAnswer is C memory for the NVLink peer-to-peer status of all GPUs. It must
// outlive a call that hangs.
type peersAnswer struct{ c *C.wg_peers1 }

func newPeersAnswer() *peersAnswer {
	return &peersAnswer{(*C.wg_peers1)(C.calloc(1, C.sizeof_wg_peers1))}
}

func (a *peersAnswer) free() {
	C.free(unsafe.Pointer(a.c))
	a.c = nil
}

// status is what the answer says of a pair of GPUs, by DCGM's numbers; −1 if
// nothing. One that is newer than linkStatuses is Unknown.
func (a *peersAnswer) status(gpu, peer uint32) int {
	if peer >= C.WG_MAX_GPUS {
		return -1
	}
	for i := range int(a.c.gpu_count) {
		if g := &a.c.gpus[i]; uint32(g.id) == gpu {
			s := int(g.status[peer])
			return max(-1, min(s, len(linkStatuses)-1))
		}
	}
	return -1
}

// peers asks for the status of each GPU to each other. The engine asks the driver.
func (e *engine) peers(into *peersAnswer) error {
	if r := C.wg_peers(e.lib.table, e.handle, into.c); r != 0 {
		return fmt.Errorf("ask for peer-to-peer status: %w", status(r))
	}
	return nil
}
