//go:build linux && cgo

package dcgm

// #include <malloc.h>
// #include <stdlib.h>
// #include "calls_linux.h"
import "C"

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unsafe"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
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

// latest reads the newest values of all fields of all entities in one call, from the engine's cache or live from the driver.
// Shape: len(cells) = len(entities) × len(fields) ≤ the room of s, entity by entity. It allocates nothing unless it fails.
func (e *engine) latest(entities []entity, fields []uint16, live bool, s scratch, cells []cell) error {
	if n := len(entities) * len(fields); n > s.room || n != len(cells) {
		panic("dcgm: shape of a read")
	}
	return answer(C.wg_latest(e.table, e.handle, centities(entities), C.uint32_t(len(entities)), cfields(fields), C.uint32_t(len(fields)),
		cBool(live), s.values, (*C.wg_cell)(unsafe.Pointer(&cells[0]))))
}

// live reads numbers from the driver instead of the engine's cache. It needs no watch and takes as long as the driver does.
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

// texts reads texts from the driver, entity by entity, as valid UTF-8, and "" for missing texts. It returns blanks
// ("<<<…>>>") unchanged.
func (e *engine) texts(entities []entity, fields []uint16) ([]string, error) {
	n := len(entities) * len(fields)
	if n == 0 {
		return nil, nil
	}
	values := (*C.wg_value2)(C.malloc(C.size_t(n) * C.sizeof_wg_value2))
	defer C.free(unsafe.Pointer(values))
	buf := make([]C.char, n*C.WG_STRING)
	r := C.wg_texts(e.table, e.handle, centities(entities), C.uint32_t(len(entities)), cfields(fields), C.uint32_t(len(fields)),
		1, values, &buf[0])
	if r != 0 {
		return nil, status(r)
	}
	out := make([]string, n)
	for i := range out {
		out[i] = text(buf[i*C.WG_STRING:][:C.WG_STRING])
	}
	return out, nil
}

// since fills events with the history of a block with one field, entity by entity, oldest first. after holds each
// entity's start. It returns the number of events and drops values that do not fit. It allocates nothing unless it fails.
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

// health checks a group and returns its incidents. A healthy group has none. The answer takes 1 MiB, and libdcgm frees
// copies of that size: malloc_trim returns them to the kernel.
func (e *engine) health(group handleID) (out []incident, err error) {
	into := (*C.wg_health5)(C.malloc(C.sizeof_wg_health5))
	defer func() { C.free(unsafe.Pointer(into)); C.malloc_trim(0) }()
	if r := C.wg_health(e.table, e.handle, C.uintptr_t(group), into); r != 0 {
		return nil, fmt.Errorf("check health: %w", status(r))
	}
	for i := range int(into.count) {
		in := &into.incidents[i]
		out = append(out, incident{entityOf(in.entity), uint32(in.system), int32(in.health), uint32(in.code), text(in.message[:])})
	}
	return out, nil
}

// peersAnswer is C memory for the NVLink peer-to-peer status of all GPUs.
type peersAnswer struct{ c *C.wg_peers1 }

func (e *engine) newPeersAnswer() peersAnswer {
	return peersAnswer{(*C.wg_peers1)(e.alloc(C.sizeof_wg_peers1))}
}

// status returns the index into field.LinkStatuses for a pair of GPUs, by DCGM's IDs, or −1 without an answer. A status that is
// newer than field.LinkStatuses is Unknown.
func (a peersAnswer) status(gpu, peer uint32) int {
	if peer >= C.WG_MAX_GPUS {
		return -1
	}
	for i := range int(a.c.gpu_count) {
		if g := &a.c.gpus[i]; uint32(g.id) == gpu {
			s := int(g.status[peer])
			return max(-1, min(s, len(field.LinkStatuses)-1))
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

// entities lists the entities of a kind, without duplicates and at most collector.MaxGPUs: DCGM supports 32 GPUs and 12
// switches.
func (e *engine) entities(kind entityKind, onlySupported bool) ([]uint32, error) {
	const unwritten = math.MaxUint32
	var room [collector.MaxGPUs]uint32
	for i := range room {
		room[i] = unwritten
	}
	n := C.int(len(room))
	r := C.wg_entities(e.table, e.handle, C.int(kind), cBool(onlySupported), (*C.uint32_t)(unsafe.Pointer(&room[0])), &n)
	if r != 0 {
		return nil, fmt.Errorf("list entities of kind %q: %w", kind, status(r))
	}
	count := int(uint32(n))
	var ids []uint32
	for _, id := range room[:min(count, len(room))] {
		if id != unwritten && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	e.leftOut[kind] = count - len(ids)
	return ids, nil
}

// hierarchy lists the MIG instances of all GPUs.
func (e *engine) hierarchy() ([]migEntity, error) {
	h := (*C.wg_hierarchy2)(C.malloc(C.sizeof_wg_hierarchy2))
	defer C.free(unsafe.Pointer(h))
	if r := C.wg_hierarchy(e.table, e.handle, h); r != 0 {
		return nil, fmt.Errorf("list MIG instances: %w", status(r))
	}
	var out []migEntity
	for i := range int(h.count) {
		m := &h.list[i]
		out = append(out, migEntity{
			entity: entityOf(m.entity), parent: entityOf(m.parent),
			gpuIndex: uint32(m.info.gpu_index), instance: uint32(m.info.instance), compute: uint32(m.info.compute_instance),
		})
	}
	return out, nil
}

func entityOf(e C.wg_entity) entity { return entity{entityKind(e.kind), uint32(e.id)} }

// text copies a C string, which may lack its terminator, as valid UTF-8.
func text(b []C.char) string {
	s, _, _ := strings.Cut(C.GoStringN(&b[0], C.int(len(b))), "\x00")
	return strings.ToValidUTF8(s, "\uFFFD")
}

// cpus lists NVIDIA's CPUs of the node.
func (e *engine) cpus() ([]cpu, error) {
	var h C.wg_cpus1
	if r := C.wg_cpus(e.table, e.handle, &h); r != 0 {
		return nil, fmt.Errorf("list CPUs: %w", status(r))
	}
	var out []cpu
	for _, c := range h.cpus[:h.count] {
		one := cpu{id: uint32(c.id)}
		for word, bits := range c.owned.cores {
			for bit := range 64 {
				if bits>>bit&1 != 0 {
					one.cores = append(one.cores, uint32(64*word+bit))
				}
			}
		}
		out = append(out, one)
	}
	return out, nil
}

// linksUp lists the active links of all GPUs and switches.
func (e *engine) linksUp() (up []link, err error) {
	l := (*C.wg_links5)(C.malloc(C.sizeof_wg_links5))
	defer C.free(unsafe.Pointer(l))
	if r := C.wg_links(e.table, e.handle, l); r != 0 {
		return nil, fmt.Errorf("list NVLinks: %w", status(r))
	}
	add := func(owner entity, states []C.int32_t) {
		for number, state := range states {
			if state == linkUp {
				up = append(up, link{owner, number})
			}
		}
	}
	for i := range int(l.gpu_count) {
		g := &l.gpus[i]
		add(entity{kindGPU, uint32(g.id)}, g.state[:])
	}
	for i := range int(l.switch_count) {
		s := &l.switches[i]
		add(entity{kindSwitch, uint32(s.id)}, s.state[:])
	}
	return up, nil
}

// profilingFields lists the profiling fields in a GPU's metric groups.
func (e *engine) profilingFields(gpu uint32) ([]field.ID, error) {
	var g C.wg_metric_groups3
	if r := C.wg_prof_groups(e.table, e.handle, C.uint32_t(gpu), &g); r != 0 {
		return nil, fmt.Errorf("list profiling fields of GPU %d: %w", gpu, status(r))
	}
	var out []field.ID
	for _, group := range g.groups[:g.group_count] {
		for _, f := range group.fields[:group.field_count] {
			out = append(out, field.ID(f))
		}
	}
	return out, nil
}
