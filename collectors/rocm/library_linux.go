//go:build cgo && (amd64 || arm64)

package rocm

/*
#cgo CFLAGS: -std=c11 -Wall -Wextra
#include <stdint.h>
#include <stdlib.h>

// Each argument is one word. On x86-64 and arm64, functions read 32- and 64-bit numbers and pointers from the same place
// and ignore excess arguments. So the build needs no prototypes and no ROCm headers.
typedef int function(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t g, uint64_t h);

static int native_call(void *f, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t g, uint64_t h) {
	return ((function *)f)(a, b, c, d, e, g, h);
}
*/
import "C"

import (
	"errors"
	"unsafe"

	"warpgauge/collectors/internal/dl"
)

// load loads the first existing library of names and looks up all functions. It calls none. Errors: those of dl.Open, or
// a missing required function.
func load(names []string, api *libraryAPI) (*library, error) {
	l, err := dl.Open(names)
	if err != nil {
		return nil, err
	}
	out := &library{api, l.Path(), make([]unsafe.Pointer, len(api.Functions))}
	for i, f := range api.Functions {
		p, err := l.Lookup(f.Name)
		if err == nil {
			out.address[i] = p
		} else if f.Required {
			return nil, errors.Join(err, l.Close())
		}
	}
	return out, nil
}

func (l *library) call(f int, a *[maxArgs]uint64) int32 {
	return int32(C.native_call(l.address[f], C.uint64_t(a[0]), C.uint64_t(a[1]), C.uint64_t(a[2]), C.uint64_t(a[3]),
		C.uint64_t(a[4]), C.uint64_t(a[5]), C.uint64_t(a[6])))
}

// cNew returns zeroed C memory, which a library may write to and keep pointers into.
func cNew[T any]() *T {
	p := (*T)(C.malloc(C.size_t(unsafe.Sizeof(*new(T))))) // malloc aborts if memory is exhausted
	*p = *new(T)
	return p
}

// cFree releases memory from cNew. No running call may use it.
func cFree[T any](p *T) { C.free(unsafe.Pointer(p)) }

// addressOf returns the argument that points to memory from cNew.
func addressOf[T any](p *T) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }
