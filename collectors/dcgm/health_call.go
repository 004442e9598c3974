//go:build linux && cgo

package dcgm

// #include <stdlib.h>
// #include "calls_linux.h"
import "C"

import (
	"fmt"
	"time"
	"unsafe"
)

// watchHealth asks the engine to watch what its health checks judge.
func (e *engine) watchHealth(group handleID, systems uint32, every, keep time.Duration) error {
	return answer(C.wg_health_watch(e.lib.table, e.handle, C.uintptr_t(group), C.uint32_t(systems), C.int64_t(every.Microseconds()), C.double(keep.Seconds())))
}

// healthAnswer is C memory, about 1 MiB, for the incidents of a health check. It
// must outlive a call that hangs.
type healthAnswer struct{ c *C.wg_health5 }

func newHealthAnswer() *healthAnswer {
	return &healthAnswer{(*C.wg_health5)(C.calloc(1, C.sizeof_wg_health5))}
}

func (a *healthAnswer) free() {
	C.free(unsafe.Pointer(a.c))
	a.c = nil
}

func (a *healthAnswer) len() int { return int(a.c.count) }

func (a *healthAnswer) at(i int) incident {
	in := &a.c.incidents[i]
	return incident{entity: entityOf(in.entity), system: uint32(in.system), health: int32(in.health), code: uint32(in.code)}
}

// message is DCGM's text of an incident.
func (a *healthAnswer) message(i int) string { return text(a.c.incidents[i].message[:]) }

// health judges a group; nothing wrong is no incident.
func (e *engine) health(group handleID, into *healthAnswer) error {
	if r := C.wg_health(e.lib.table, e.handle, C.uintptr_t(group), into.c); r != 0 {
		return fmt.Errorf("check health: %w", status(r))
	}
	return nil
}
