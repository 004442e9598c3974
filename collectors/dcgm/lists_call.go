//go:build linux && cgo

package dcgm

// #include <stdlib.h>
// #include "calls_linux.h"
import "C"

import (
	"fmt"
	"strings"
	"unsafe"
)

const maxEntities = 4096 // more than any kind has: 32 GPUs of 36 links, 12 switches of 256 ports

// entities lists the entities of a kind.
func (e *engine) entities(kind entityKind, onlySupported bool) ([]uint32, error) {
	ids := make([]uint32, maxEntities)
	n := C.int(len(ids))
	r := C.wg_entities(e.lib.table, e.handle, C.int(kind), truth(onlySupported), (*C.uint32_t)(unsafe.Pointer(&ids[0])), &n)
	if r != 0 {
		return nil, fmt.Errorf("list entities of kind %q: %w", kind, status(r))
	}
	return ids[:max(0, min(int(n), len(ids)))], nil
}

// hierarchy lists the MIG instances of all GPUs.
func (e *engine) hierarchy() ([]migEntity, error) {
	h := (*C.wg_hierarchy2)(C.malloc(C.sizeof_wg_hierarchy2))
	defer C.free(unsafe.Pointer(h))
	if r := C.wg_hierarchy(e.lib.table, e.handle, h); r != 0 {
		return nil, fmt.Errorf("list MIG instances: %w", status(r))
	}
	out := make([]migEntity, 0, int(h.count))
	for i := range int(h.count) {
		m := &h.list[i]
		out = append(out, migEntity{
			entity: entityOf(m.entity), parent: entityOf(m.parent),
			uuid: text(m.info.gpu_uuid[:]), gpuIndex: uint32(m.info.gpu_index),
			instance: uint32(m.info.instance), compute: uint32(m.info.compute_instance), slices: uint32(m.info.slices),
		})
	}
	return out, nil
}

func entityOf(e C.wg_entity) entity { return entity{entityKind(e.kind), uint32(e.id)} }

// text copies a C string that may lack its end.
func text(b []C.char) string {
	var s strings.Builder
	for _, c := range b {
		if c == 0 {
			break
		}
		s.WriteByte(byte(c))
	}
	return s.String()
}

// cpus lists NVIDIA's CPUs of the node.
func (e *engine) cpus() ([]cpu, error) {
	var h C.wg_cpus1
	if r := C.wg_cpus(e.lib.table, e.handle, &h); r != 0 {
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

// linkStates lists the links of all GPUs and switches.
func (e *engine) linkStates() ([]links, error) {
	l := (*C.wg_links5)(C.malloc(C.sizeof_wg_links5))
	defer C.free(unsafe.Pointer(l))
	if r := C.wg_links(e.lib.table, e.handle, l); r != 0 {
		return nil, fmt.Errorf("list NVLinks: %w", status(r))
	}
	var out []links
	for i := range int(l.gpu_count) {
		g := &l.gpus[i]
		out = append(out, links{entity{kindGPU, uint32(g.id)}, states(g.state[:])})
	}
	for i := range int(l.switch_count) {
		s := &l.switches[i]
		out = append(out, links{entity{kindSwitch, uint32(s.id)}, states(s.state[:])})
	}
	return out, nil
}

func states(in []C.int32_t) []linkState {
	out := make([]linkState, len(in))
	for i, s := range in {
		out[i] = linkState(s)
	}
	return out
}

// metricGroups lists the profiling fields that a GPU offers.
func (e *engine) metricGroups(gpu uint32) ([]metricGroup, error) {
	var g C.wg_metric_groups3
	if r := C.wg_prof_groups(e.lib.table, e.handle, C.uint32_t(gpu), &g); r != 0 {
		return nil, fmt.Errorf("ask for profiling fields of GPU %d: %w", gpu, status(r))
	}
	out := make([]metricGroup, g.group_count)
	for i := range out {
		from := &g.groups[i]
		out[i] = metricGroup{major: uint16(from.major), minor: uint16(from.minor)}
		for _, f := range from.fields[:from.field_count] {
			out[i].fields = append(out[i].fields, uint16(f))
		}
	}
	return out, nil
}
