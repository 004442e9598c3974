//go:build linux && cgo

package dcgm

// #include <stdlib.h>
// #include "calls_linux.h"
import "C"

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unsafe"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

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
	raw := make([]byte, 0, len(b))
	for _, c := range b {
		if c == 0 {
			break
		}
		raw = append(raw, byte(c))
	}
	return strings.ToValidUTF8(string(raw), "\uFFFD")
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

// linksUp lists the links of all GPUs and switches that are up.
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
