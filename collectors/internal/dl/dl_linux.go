//go:build linux && cgo

package dl

/*
// glibc before 2.34 keeps these functions in libdl.
#cgo LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>

// dl_path returns the file behind a handle, or NULL. The text belongs to the loader and lives as long as the handle.
static const char *dl_path(void *handle) {
	struct link_map *m = NULL;
	if (dlinfo(handle, RTLD_DI_LINKMAP, &m) != 0 || m == NULL)
		return NULL;
	return m->l_name;
}
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"
)

// Library is one loaded shared library.
type Library struct {
	path string

	mu     sync.Mutex
	handle unsafe.Pointer // nil after Close
}

// Open loads the first of names (sonames or paths) that the loader accepts, with lazy binding and private symbols. If none
// loads, the error is an *OpenError with the loader's message for each. It may take as long as the library's constructors.
func Open(names []string) (*Library, error) {
	var failed OpenError
	for _, name := range names {
		h, text := open(name)
		if h != nil {
			if p := C.dl_path(h); p != nil && *p != 0 {
				name = C.GoString(p)
			}
			return &Library{path: name, handle: h}, nil
		}
		failed.Attempts = append(failed.Attempts, Attempt{Name: name, Text: text})
	}
	return nil, &failed
}

// Path returns the loaded file, as the loader resolved it.
func (l *Library) Path() string { return l.path }

// Lookup returns the address of a symbol, never nil without an error. Errors: ErrNoSymbol, ErrClosed, wrapped.
func (l *Library) Lookup(symbol string) (unsafe.Pointer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.handle == nil {
		return nil, fmt.Errorf("look up %q in %q: %w", symbol, l.path, ErrClosed)
	}
	p, text := lookup(l.handle, symbol)
	if p == nil {
		return nil, fmt.Errorf("look up %q in %q: %w: %s", symbol, l.path, ErrNoSymbol, text)
	}
	return p, nil
}

// Has reports whether the library is open and defines the symbol.
func (l *Library) Has(symbol string) bool {
	_, err := l.Lookup(symbol)
	return err == nil
}

// Close unloads the library unless it is open elsewhere in the process. It may be called again, even after an error,
// and does nothing then.
func (l *Library) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.handle
	if h == nil {
		return nil
	}
	l.handle = nil
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if C.dlclose(h) != 0 {
		return fmt.Errorf("close library %q: %w", l.path, errors.New(lastError()))
	}
	return nil
}

// open pins the thread, because the loader keeps its last error per thread.
func open(name string) (handle unsafe.Pointer, text string) {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	h := C.dlopen(c, C.RTLD_LAZY|C.RTLD_LOCAL)
	if h == nil {
		return nil, lastError()
	}
	return h, ""
}

// lookup pins the thread as open does.
func lookup(handle unsafe.Pointer, symbol string) (p unsafe.Pointer, text string) {
	c := C.CString(symbol)
	defer C.free(unsafe.Pointer(c))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	C.dlerror() // clear an earlier call's error on this thread
	p = C.dlsym(handle, c)
	if p == nil {
		return nil, lastError()
	}
	return p, ""
}

// lastError is only valid on the thread of the failed call.
func lastError() string {
	if e := C.dlerror(); e != nil {
		return C.GoString(e)
	}
	return "the loader gives no reason"
}
