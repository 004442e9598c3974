//go:build linux && cgo

package dcgm

// #include <stdlib.h>
// #include "calls_linux.h"
import "C"

import (
	"fmt"
	"strings"
	"time"
	"unsafe"
)

// Sizes that must be equal in Go and C.
var (
	_ [unsafe.Sizeof(entity{})]byte = [C.sizeof_wg_entity]byte{}
	_ [unsafe.Sizeof(cell{})]byte   = [C.sizeof_wg_cell]byte{}
	_ [unsafe.Sizeof(event{})]byte  = [C.sizeof_wg_event]byte{}
)

func centities(e []entity) *C.wg_entity { return (*C.wg_entity)(unsafe.Pointer(&e[0])) }
func cfields(f []uint16) *C.uint16_t    { return (*C.uint16_t)(unsafe.Pointer(&f[0])) }

// scratch is C memory for the values of one call, 4 KiB each.
type scratch struct {
	values *C.wg_value2
	room   int
}

// newScratch allocates scratch, which lives until the engine is closed.
func (e *engine) newScratch(room int) scratch {
	return scratch{(*C.wg_value2)(e.alloc(C.size_t(max(room, 1)) * C.sizeof_wg_value2)), room}
}

// latest reads the newest values of all fields of all entities in one call, from the engine's cache or live from the
// driver. Shape: len(cells) = len(entities) × len(fields) ≤ the room of s, entity by entity. It allocates nothing unless
// it fails.
func (e *engine) latest(entities []entity, fields []uint16, live bool, s scratch, cells []cell) error {
	if n := len(entities) * len(fields); n > s.room || n != len(cells) {
		panic("dcgm: shape of a read")
	}
	return answer(C.wg_latest(e.table, e.handle, centities(entities), C.uint32_t(len(entities)), cfields(fields), C.uint32_t(len(fields)),
		cBool(live), s.values, (*C.wg_cell)(unsafe.Pointer(&cells[0]))))
}

// live reads numbers from the driver instead of the engine's cache. It needs no watch and takes as long as the driver
// does.
func (e *engine) live(entities []entity, fields []uint16) ([]cell, error) {
	n := len(entities) * len(fields)
	if n == 0 {
		return nil, nil
	}
	s := scratch{(*C.wg_value2)(C.malloc(C.size_t(n) * C.sizeof_wg_value2)), n}
	defer C.free(unsafe.Pointer(s.values))
	cells := make([]cell, n)
	return cells, e.latest(entities, fields, true, s, cells)
}

// texts is live for texts, entity by entity, in valid UTF-8; "" if there is none. It returns blanks ("<<<…>>>")
// unchanged.
func (e *engine) texts(entities []entity, fields []uint16) ([]string, error) {
	n := len(entities) * len(fields)
	if n == 0 {
		return nil, nil
	}
	values := (*C.wg_value2)(C.malloc(C.size_t(n) * C.sizeof_wg_value2))
	defer C.free(unsafe.Pointer(values))
	buf := make([]byte, n*C.WG_STRING)
	r := C.wg_texts(e.table, e.handle, centities(entities), C.uint32_t(len(entities)), cfields(fields), C.uint32_t(len(fields)),
		1, values, (*C.char)(unsafe.Pointer(&buf[0])))
	if r != 0 {
		return nil, status(r)
	}
	out := make([]string, n)
	for i := range out {
		text, _, _ := strings.Cut(string(buf[i*C.WG_STRING:][:C.WG_STRING]), "\x00")
		out[i] = strings.ToValidUTF8(text, "\uFFFD")
	}
	return out, nil
}

// since fills events with the values of a block with one field, for each entity those after its own timestamp, entity
// by entity, oldest first. It returns their number and drops values that do not fit. It allocates nothing unless it
// fails.
func (e *engine) since(b *block, after []int64, events []event) (int, error) {
	b.count = int32(len(events))
	r := C.wg_since(e.table, e.handle, C.uintptr_t(b.group), C.uintptr_t(b.watched), centities(b.entities), (*C.int64_t)(unsafe.Pointer(&after[0])),
		C.uint32_t(len(b.entities)), (*C.wg_event)(unsafe.Pointer(&events[0])), (*C.int)(unsafe.Pointer(&b.count)))
	return int(b.count), answer(r)
}

// watchHealth makes the engine watch the data for its health checks.
func (e *engine) watchHealth(group handleID, systems uint32, every, keep time.Duration) error {
	return answer(C.wg_health_watch(e.table, e.handle, C.uintptr_t(group), C.uint32_t(systems), C.int64_t(every.Microseconds()), C.double(keep.Seconds())))
}

// healthAnswer is C memory for the incidents of a health check, about 1 MiB.
type healthAnswer struct{ c *C.wg_health5 }

func (e *engine) newHealthAnswer() healthAnswer {
	return healthAnswer{(*C.wg_health5)(e.alloc(C.sizeof_wg_health5))}
}

func (a healthAnswer) len() int { return int(a.c.count) }

func (a healthAnswer) at(i int) incident {
	in := &a.c.incidents[i]
	return incident{entity: entityOf(in.entity), system: uint32(in.system), health: int32(in.health), code: uint32(in.code)}
}

// message returns DCGM's text for an incident.
func (a healthAnswer) message(i int) string { return text(a.c.incidents[i].message[:]) }

// health checks a group. A healthy group has no incidents.
func (e *engine) health(group handleID, into healthAnswer) error {
	if r := C.wg_health(e.table, e.handle, C.uintptr_t(group), into.c); r != 0 {
		return fmt.Errorf("check health: %w", status(r))
	}
	return nil
}

// peersAnswer is C memory for the NVLink peer-to-peer status of all GPUs.
type peersAnswer struct{ c *C.wg_peers1 }

func (e *engine) newPeersAnswer() peersAnswer {
	return peersAnswer{(*C.wg_peers1)(e.alloc(C.sizeof_wg_peers1))}
}

// status returns the answer for a pair of GPUs, by DCGM's IDs; −1 if there is none. A status that is newer than
// linkStatuses is Unknown.
func (a peersAnswer) status(gpu, peer uint32) int {
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

// peers reads the status of each pair of GPUs. The engine asks the driver.
func (e *engine) peers(into peersAnswer) error {
	if r := C.wg_peers(e.table, e.handle, into.c); r != 0 {
		return fmt.Errorf("read peer-to-peer status: %w", status(r))
	}
	return nil
}
