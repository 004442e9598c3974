//go:build linux && cgo

package dcgm

// #cgo CFLAGS: -std=c11 -Wall -Wextra
// #include <stdlib.h>
// #include "calls_linux.h"
import "C"

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"warpgauge/pkg/dl"
)

// library is a loaded libdcgm.so.4: addresses, looked up once. Its calls may be
// made by several goroutines; DCGM serves them one after the other.
type library struct {
	dl    *dl.Library
	table *C.wg_table // in C memory: calls that never return may still read it
	lacks []string    // functions that we call where there are
}

// The functions without which nothing works.
var required = []string{
	"dcgmInit", "dcgmShutdown", "dcgmGetEntityGroupEntities", "dcgmGroupCreate", "dcgmGroupAddEntity", "dcgmGroupDestroy",
	"dcgmFieldGroupCreate", "dcgmFieldGroupDestroy", "dcgmWatchFields", "dcgmUnwatchFields", "dcgmEntitiesGetLatestValues",
}

// load opens the first of names that the loader accepts and looks everything up.
func load(names []string) (*library, error) {
	so, err := dl.Open(names)
	if err != nil {
		return nil, err
	}
	l := &library{dl: so, table: (*C.wg_table)(C.calloc(1, C.sizeof_wg_table))}
	for i := range int(C.WG_FUNCTION_COUNT) {
		name := C.GoString(C.wg_function_name(C.int(i)))
		p, err := so.Lookup(name)
		if err != nil {
			l.lacks = append(l.lacks, name)
			continue
		}
		l.table.at[i] = p
	}
	for _, name := range required {
		if !l.has(name) {
			path := so.Path()
			l.close()
			return nil, fmt.Errorf("library %s lacks %s, which libdcgm.so.4 has had since 4.0", path, name)
		}
	}
	return l, nil
}

func (l *library) has(name string) bool {
	for _, n := range l.lacks {
		if n == name {
			return false
		}
	}
	return true
}

// path is the file that was loaded.
func (l *library) path() string { return l.dl.Path() }

// close unloads the library. No call may be in progress. The table stays: it is
// a few hundred bytes, and a call that was abandoned may still return to it.
func (l *library) close() {
	_ = l.dl.Close()
	l.table = nil
}

func (l *library) init() error     { return answer(C.wg_init(l.table)) }
func (l *library) shutdown() error { return answer(C.wg_shutdown(l.table)) }

// version is what the library tells of itself: "version:4.6.0;arch:x86_64;…".
func (l *library) version() (string, error) {
	var v C.wg_version2
	r := C.wg_version(l.table, 0, 0, &v)
	return C.GoString(&v.text[0]), answer(r)
}

func answer(r C.int) error {
	if r == 0 {
		return nil
	}
	return status(r)
}

// engine is a host engine that the library is connected to, or runs itself.
type engine struct {
	lib      *library
	handle   C.uintptr_t
	embedded bool
	gone     atomic.Bool // what it kept for us is gone with it, and nothing has to be taken back
}

// embed starts an engine inside this process. logFile "" means no log; never
// "-", which is file descriptor 1. It may take seconds.
func (l *library) embed(logFile string, severity int) (*engine, error) {
	e := &engine{lib: l, embedded: true}
	var file *C.char
	if logFile != "" {
		file = C.CString(logFile)
		defer C.free(unsafe.Pointer(file))
	}
	if r := C.wg_start_embedded(l.table, file, C.int(severity), &e.handle); r != 0 {
		return nil, fmt.Errorf("start the embedded host engine: %w", status(r))
	}
	return e, nil
}

// connect connects to a host engine. It may take as long as timeout.
func (l *library) connect(a address, timeout time.Duration) (*engine, error) {
	e := &engine{lib: l}
	text := C.CString(a.text)
	defer C.free(unsafe.Pointer(text))
	r := C.wg_connect(l.table, text, truth(a.url), truth(a.unix), C.uint(timeout.Milliseconds()), &e.handle)
	if r != 0 {
		return nil, fmt.Errorf("connect to host engine %q: %w", a.text, status(r))
	}
	return e, nil
}

func truth(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// close ends the connection or the embedded engine. Groups and watches of a
// connection go with it.
func (e *engine) close() error {
	if e.embedded {
		return answer(C.wg_stop_embedded(e.lib.table, e.handle))
	}
	return answer(C.wg_disconnect(e.lib.table, e.handle))
}

// version is what the engine tells of itself.
func (e *engine) version() (string, error) {
	var v C.wg_version2
	r := C.wg_version(e.lib.table, e.handle, 1, &v)
	return C.GoString(&v.text[0]), answer(r)
}

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

// cpu is a CPU and the numbers of its cores.
type cpu struct {
	id    uint32
	cores []uint32
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

func centities(e []entity) *C.wg_entity { return (*C.wg_entity)(unsafe.Pointer(&e[0])) }
func cfields(f []uint16) *C.uint16_t    { return (*C.uint16_t)(unsafe.Pointer(&f[0])) }

// Sizes that Go and C must agree on.
var (
	_ [unsafe.Sizeof(entity{})]byte = [C.sizeof_wg_entity]byte{}
	_ [unsafe.Sizeof(cell{})]byte   = [C.sizeof_wg_cell]byte{}
)

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
