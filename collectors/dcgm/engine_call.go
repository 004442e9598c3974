//go:build linux && cgo

package dcgm

// #include <stdlib.h>
// #include "calls_linux.h"
import "C"

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"
)

// engine is a host engine that the library is connected to, or runs itself.
type engine struct {
	lib      *library
	handle   C.uintptr_t
	embedded bool
	gone     atomic.Bool // what it kept for us is gone with it, and nothing has to be taken back
	watches  watches
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
