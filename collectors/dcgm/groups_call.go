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
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	var id C.uintptr_t
	if len(members) == 0 {
		return 0, fmt.Errorf("create group %q: no members", name)
	}
	r := C.wg_group_create(e.lib.table, e.handle, cname, centities(members), C.int(len(members)), &id)
	if r != 0 {
		return 0, fmt.Errorf("create group %q of %d: %w", name, len(members), status(r))
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
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	var id C.uintptr_t
	if len(fields) == 0 {
		return 0, fmt.Errorf("create field group %q: no fields", name)
	}
	r := C.wg_fields_create(e.lib.table, e.handle, cname, cfields(fields), C.int(len(fields)), &id)
	if r != 0 {
		return 0, fmt.Errorf("create field group %q of %d: %w", name, len(fields), status(r))
	}
	return handleID(id), nil
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
