//go:build linux && cgo

package dcgm

// #cgo CFLAGS: -std=c11 -Wall -Wextra
// #include <stdlib.h>
// #include "calls_linux.h"
import "C"

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
	"unsafe"

	"go.uber.org/zap"

	"warpgauge/collectors/internal/dl"
	"warpgauge/pkg/collector"
)

// engine is one connection to a host engine, or the engine embedded in this process, with the addresses of the library's
// functions. Several goroutines may make calls; DCGM serves them one after the other.
type engine struct {
	path     string      // of the library
	table    *C.wg_table // in C memory, because C keeps it
	lacks    []string    // functions that the library lacks
	handle   C.uintptr_t
	embedded bool
	room     int // how many values a call may have

	leftOut map[entityKind]int // entities that the last listing skipped: too many, or listed twice

	prefix string // of group names, unique among all clients of the engine
	names  int    // number of names in use
	memory []unsafe.Pointer
}

// required lists the functions that connect needs.
var required = []string{
	"dcgmInit", "dcgmGetEntityGroupEntities", "dcgmGroupCreate", "dcgmGroupAddEntity", "dcgmGroupDestroy",
	"dcgmFieldGroupCreate", "dcgmFieldGroupDestroy", "dcgmWatchFields", "dcgmUnwatchFields", "dcgmEntitiesGetLatestValues",
}

// connect loads and initialises the library and connects to the engine, or starts one. It may take seconds. Errors name
// the attempts and the remedy.
//
// It never unloads the library, not even after an error, because the library's threads would crash. Loading it again
// returns the same library, and initialising it again does nothing.
func connect(o Options) (*engine, error) {
	names, err := o.candidates()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", collector.ErrNotLoaded, err)
	}
	lib, err := dl.Open(names)
	var attempts *dl.OpenError
	switch {
	case errors.As(err, &attempts) && attempts.Absent() && o.Engine != "":
		return nil, fmt.Errorf("%w: host engine %q is not used: no %s by the loader's path or where packages put it, and warpgauge's default image has none; use an image with DCGM, or install datacenter-gpu-manager-4-core (or name the library with --dcgm-library); until then NVML is the source, without DCGM_FI_PROF_ fields on GPUs before Hopper",
			collector.ErrNotLoaded, o.Engine, soname)
	case errors.As(err, &attempts) && attempts.Absent():
		return nil, fmt.Errorf("%w: no %s by the loader's path or where packages put it; install datacenter-gpu-manager-4-core (or name it with --dcgm-library)",
			collector.ErrNotLoaded, soname)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", collector.ErrNotLoaded, err)
	}
	e := &engine{path: lib.Path(), room: valuesPerCall, leftOut: map[entityKind]int{}, prefix: fmt.Sprintf("warpgauge-%d-%s", os.Getpid(), rand.Text())}
	if err := e.start(lib, o); err != nil {
		err = e.mismatched(o, err)
		e.free()
		return nil, err
	}
	version, _ := e.version()
	o.Log.Info("connected to the host engine", zap.String("file", e.path), zap.String("source", o.engineName()), zap.String("version", shortVersion(version)))
	return e, nil
}

func (e *engine) start(lib *dl.Library, o Options) error {
	e.table = (*C.wg_table)(e.alloc(C.sizeof_wg_table))
	for i := range int(C.WG_FUNCTION_COUNT) {
		name := C.GoString(C.wg_function_name(C.int(i)))
		p, err := lib.Lookup(name)
		if err != nil {
			e.lacks = append(e.lacks, name)
		}
		e.table.at[i] = p
	}
	for _, name := range required {
		if !e.has(name) {
			return fmt.Errorf("%w: library %s lacks %s, which libdcgm.so.4 has had since 4.0", collector.ErrNotLoaded, e.path, name)
		}
	}
	if r := C.wg_init(e.table); r != 0 {
		return fmt.Errorf("%w: initialise %s: %w", collector.ErrNotLoaded, e.path, status(r))
	}
	if o.Engine == "" {
		return explain(o, e.embed(o.LogFile, severities[o.LogLevel]))
	}
	a, err := parseAddress(o.Engine, e.has("dcgmConnect_v3"))
	if err != nil {
		return err
	}
	if a.far {
		e.room = valuesPerRemoteCall
	}
	return explain(o, e.dial(a, o.ConnectTimeout))
}

// embed starts an engine inside this process. logFile "" disables its log. It must never be "-", which is file descriptor 1.
func (e *engine) embed(logFile string, severity int) error {
	e.embedded = true
	var file *C.char
	if logFile != "" {
		file = C.CString(logFile)
		defer C.free(unsafe.Pointer(file))
	}
	if r := C.wg_start_embedded(e.table, file, C.int(severity), &e.handle); r != 0 {
		return fmt.Errorf("start the embedded host engine: %w", status(r))
	}
	return nil
}

func (e *engine) dial(a address, timeout time.Duration) error {
	text := C.CString(a.text)
	defer C.free(unsafe.Pointer(text))
	r := C.wg_connect(e.table, text, cBool(a.url), cBool(a.unix), C.uint(timeout.Milliseconds()), &e.handle)
	if r != 0 {
		return fmt.Errorf("connect to host engine %q: %w", a.text, status(r))
	}
	return nil
}

// explain adds the remedy to an error of the first contact with an engine.
func explain(o Options, err error) error {
	s, is := errors.AsType[status](err)
	if !is || s == statusVersion {
		return err
	}
	var advice string
	switch {
	case s == statusNoSymbol:
		advice = "update the library"
	case o.Engine != "":
		advice = "start nv-hostengine there (systemctl start nvidia-dcgm), or correct --remote-hostengine-info"
	case s == statusNoNVML, s == statusInitError:
		advice = "load NVIDIA's driver; if another process runs a host engine, use it with --remote-hostengine-info"
	default:
		return fmt.Errorf("%w: %w", collector.ErrNotLoaded, err)
	}
	return fmt.Errorf("%w: %w: %s", collector.ErrNotLoaded, err, advice)
}

// mismatched names the incompatible versions of library and host engine. An engine of DCGM 4.7.1 accepts no other version.
func (e *engine) mismatched(o Options, err error) error {
	if !isStatus(err, statusVersion) {
		return err
	}
	var own C.wg_version2
	C.wg_library_version(e.table, &own)
	theirs, _ := e.version()
	return fmt.Errorf("%w: library %s is of DCGM %s, the host engine %s of %s: install the same version of both: %w",
		collector.ErrMismatch, e.path, shortVersion(C.GoString(&own.text[0])), o.engineName(), shortVersion(theirs), err)
}

// close closes the connection or the embedded engine, and with it all groups, field groups and watches of the
// connection. It frees the C memory, so no call may be running.
func (e *engine) close() error {
	defer e.free()
	var r C.int
	if e.embedded {
		r = C.wg_stop_embedded(e.table, e.handle)
	} else {
		r = C.wg_disconnect(e.table, e.handle)
	}
	if err := answer(r); err != nil && !severed(err) { // a severed connection is closed already
		return fmt.Errorf("close the connection to the host engine: %w", err)
	}
	return nil
}

// alloc returns zeroed C memory that lives until close. If memory is exhausted, the process ends.
func (e *engine) alloc(size C.size_t) unsafe.Pointer {
	p := C.malloc(size)
	clear(unsafe.Slice((*byte)(p), size))
	e.memory = append(e.memory, p)
	return p
}

func (e *engine) free() {
	for _, p := range e.memory {
		C.free(p)
	}
	e.memory = nil
}

func (e *engine) has(name string) bool { return !slices.Contains(e.lacks, name) }

// version returns the engine's description: "version:4.6.0;arch:x86_64;…".
func (e *engine) version() (string, error) {
	var v C.wg_version2
	r := C.wg_version(e.table, e.handle, &v)
	return C.GoString(&v.text[0]), answer(r)
}

// handleID identifies a group or field group of the engine.
type handleID uintptr

// nextName returns a name that no other client of the engine uses, in this process or another, because an engine refuses
// duplicate names of field groups.
func (e *engine) nextName() string {
	e.names++
	return fmt.Sprintf("%s-%d", e.prefix, e.names)
}

// createGroup creates a group of at least one entity.
func (e *engine) createGroup(members []entity) (handleID, error) {
	name := C.CString(e.nextName())
	defer C.free(unsafe.Pointer(name))
	var id C.uintptr_t
	if r := C.wg_group_create(e.table, e.handle, name, centities(members), C.int(len(members)), &id); r != 0 {
		return 0, fmt.Errorf("create a group of %d: %w", len(members), status(r))
	}
	return handleID(id), nil
}

func (e *engine) destroyGroup(id handleID) {
	C.wg_group_destroy(e.table, e.handle, C.uintptr_t(id)) // ignore errors: the engine has forgotten the group
}

// createFields creates a group of 1 to 127 fields. For an unknown field the engine returns "bad parameter".
func (e *engine) createFields(fields []uint16) (handleID, error) {
	name := C.CString(e.nextName())
	defer C.free(unsafe.Pointer(name))
	var id C.uintptr_t
	r := C.wg_fields_create(e.table, e.handle, name, cfields(fields), C.int(len(fields)), &id)
	if status(r) == statusBadParam {
		r = C.int(statusUnknownField)
	}
	if r != 0 {
		return 0, fmt.Errorf("create a group of %d fields: %w", len(fields), status(r))
	}
	return handleID(id), nil
}

func (e *engine) destroyFields(id handleID) {
	C.wg_fields_destroy(e.table, e.handle, C.uintptr_t(id))
}

// watch makes the engine poll fields of a group in the background.
func (e *engine) watch(group, fields handleID, every, keep time.Duration) error {
	return answer(C.wg_watch(e.table, e.handle, C.uintptr_t(group), C.uintptr_t(fields), C.int64_t(every.Microseconds()), C.double(keep.Seconds())))
}

func (e *engine) unwatch(group, fields handleID) {
	C.wg_unwatch(e.table, e.handle, C.uintptr_t(group), C.uintptr_t(fields))
}

func cBool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

func answer(r C.int) error {
	if r == 0 {
		return nil
	}
	return status(r)
}
