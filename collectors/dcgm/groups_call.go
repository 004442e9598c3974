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

// handleID is a group or field group of the engine.
type handleID uintptr

// createGroup makes a group of entities. Whoever gets one destroys it.
func (e *engine) createGroup(name string, members []entity) (handleID, error) {
	return create("group", name, len(members), func(name *C.char, n C.int, id *C.uintptr_t) C.int {
		return C.wg_group_create(e.lib.table, e.handle, name, centities(members), n, id)
	})
}

// create makes something that has a name and n parts.
func create(what, name string, n int, call func(name *C.char, n C.int, id *C.uintptr_t) C.int) (handleID, error) {
	if n == 0 {
		return 0, fmt.Errorf("create %s %q: of nothing", what, name)
	}
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	var id C.uintptr_t
	if r := call(cname, C.int(n), &id); r != 0 {
		return 0, fmt.Errorf("create %s %q of %d: %w", what, name, n, status(r))
	}
	return handleID(id), nil
}

func (e *engine) destroyGroup(id handleID) error {
	if e.gone.Load() {
		return statusDisconnected
	}
	return answer(C.wg_group_destroy(e.lib.table, e.handle, C.uintptr_t(id)))
}

// createFields makes a field group, of at most 128 fields.
func (e *engine) createFields(name string, fields []uint16) (handleID, error) {
	return create("field group", name, len(fields), func(name *C.char, n C.int, id *C.uintptr_t) C.int {
		return C.wg_fields_create(e.lib.table, e.handle, name, cfields(fields), n, id)
	})
}

func (e *engine) destroyFields(id handleID) error {
	if e.gone.Load() {
		return statusDisconnected
	}
	return answer(C.wg_fields_destroy(e.lib.table, e.handle, C.uintptr_t(id)))
}

// watch asks the engine to read fields of a group in the background. It does not
// wait for a value.
func (e *engine) watch(group, fields handleID, every, keep time.Duration) error {
	return answer(C.wg_watch(e.lib.table, e.handle, C.uintptr_t(group), C.uintptr_t(fields), C.int64_t(every.Microseconds()), C.double(keep.Seconds()), 0))
}

func (e *engine) unwatch(group, fields handleID) error {
	if e.gone.Load() {
		return statusDisconnected
	}
	return answer(C.wg_unwatch(e.lib.table, e.handle, C.uintptr_t(group), C.uintptr_t(fields)))
}
