//go:build linux && cgo

package dcgm

// #include <stdlib.h>
// #include "calls_linux.h"
import "C"

import (
	"strings"
	"unsafe"
)

// Sizes that Go and C must agree on.
var (
	_ [unsafe.Sizeof(entity{})]byte = [C.sizeof_wg_entity]byte{}
	_ [unsafe.Sizeof(cell{})]byte   = [C.sizeof_wg_cell]byte{}
)

func centities(e []entity) *C.wg_entity { return (*C.wg_entity)(unsafe.Pointer(&e[0])) }
func cfields(f []uint16) *C.uint16_t    { return (*C.uint16_t)(unsafe.Pointer(&f[0])) }

// scratch is C memory for the answers of one call at a time. It must outlive a
// call that hangs, so whoever abandons one leaves it be.
type scratch struct {
	values *C.wg_value2
	room   int
}

// newScratch takes room for n values, 4 KiB each.
func newScratch(n int) *scratch {
	return &scratch{(*C.wg_value2)(C.calloc(C.size_t(max(n, 1)), C.sizeof_wg_value2)), n}
}

func (s *scratch) free() {
	C.free(unsafe.Pointer(s.values))
	s.values = nil
}

// latest reads the newest values of all fields of all entities in one call.
// Shape: len(cells) = len(entities) × len(fields) ≤ the room of s, entity by
// entity. It allocates nothing unless it fails.
func (e *engine) latest(entities []entity, fields []uint16, s *scratch, cells []cell) error {
	if len(entities) == 0 || len(fields) == 0 {
		return nil
	}
	if n := len(entities) * len(fields); n > s.room || n != len(cells) {
		panic("dcgm: shape of a read")
	}
	r := C.wg_latest(e.lib.table, e.handle, centities(entities), C.uint32_t(len(entities)), cfields(fields), C.uint32_t(len(fields)),
		0, s.values, (*C.wg_cell)(unsafe.Pointer(&cells[0])))
	return answer(r)
}

// live reads numbers from the driver, past the engine's cache. It needs no watch
// and takes as long as the driver does.
func (e *engine) live(entities []entity, fields []uint16) ([]cell, error) {
	n := len(entities) * len(fields)
	if n == 0 {
		return nil, nil
	}
	s := newScratch(n)
	defer s.free()
	cells := make([]cell, n)
	r := C.wg_latest(e.lib.table, e.handle, centities(entities), C.uint32_t(len(entities)), cfields(fields), C.uint32_t(len(fields)),
		1, s.values, (*C.wg_cell)(unsafe.Pointer(&cells[0])))
	return cells, answer(r)
}

// texts is live for texts, entity by entity; "" where there is none. Blanks
// ("<<<…>>>") are passed on.
func (e *engine) texts(entities []entity, fields []uint16) ([]string, error) {
	n := len(entities) * len(fields)
	if n == 0 {
		return nil, nil
	}
	s := newScratch(n)
	defer s.free()
	buf := make([]byte, n*C.WG_STRING)
	r := C.wg_texts(e.lib.table, e.handle, centities(entities), C.uint32_t(len(entities)), cfields(fields), C.uint32_t(len(fields)),
		1, s.values, (*C.char)(unsafe.Pointer(&buf[0])))
	if r != 0 {
		return nil, status(r)
	}
	out := make([]string, n)
	for i := range out {
		out[i], _, _ = strings.Cut(string(buf[i*C.WG_STRING:][:C.WG_STRING]), "\x00")
	}
	return out, nil
}

// since reads the values of one field of one GPU that are newer than micros,
// oldest first.
func (e *engine) since(gpu uint32, fieldID uint16, micros int64) ([]cell, error) {
	const room = 64 // values between two ticks
	values := (*C.wg_value1)(C.calloc(room, C.sizeof_wg_value1))
	defer C.free(unsafe.Pointer(values))
	out := make([]cell, room)
	n := C.int(room)
	r := C.wg_since(e.lib.table, e.handle, C.int(gpu), C.uint16_t(fieldID), C.int64_t(micros+1), values,
		(*C.wg_cell)(unsafe.Pointer(&out[0])), &n)
	return out[:n], answer(r)
}
