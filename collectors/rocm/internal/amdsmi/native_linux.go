//go:build linux && cgo

package amdsmi

/*
#cgo CFLAGS: -std=c11 -Wall -Wextra
#include <stdint.h>
#include <stdlib.h>

// The signatures of libamd_smi's functions, whose addresses are only known at run
// time. Prototypes are those of amdsmi.h, 24.5 to 27.1; no header of ROCm is needed to
// build this. Structures are memory that is larger than any release's.
enum { NONE, FLAGS, OUT, OF, LIST, RECORDS, AFIDS, SIGNATURES };

static void *memory_at(uint64_t a) { return (void *)(uintptr_t)a; }

static int smi_call(void *f, uint32_t signature, const uint64_t *a) {
	switch (signature) {
	case NONE:
		return ((int (*)(void))f)();
	case FLAGS:
		return ((int (*)(uint64_t))f)(a[0]);
	case OUT:
		return ((int (*)(void *))f)(memory_at(a[0]));
	case OF:
		return ((int (*)(void *, void *))f)(memory_at(a[0]), memory_at(a[1]));
	case LIST:
		return ((int (*)(void *, uint32_t *, void **))f)(memory_at(a[0]), memory_at(a[1]), memory_at(a[2]));
	case RECORDS:
		return ((int (*)(void *, uint32_t, char *, uint64_t *, void **, uint64_t *, uint64_t *))f)(memory_at(a[0]), (uint32_t)a[1],
			memory_at(a[2]), memory_at(a[3]), memory_at(a[4]), memory_at(a[5]), memory_at(a[6]));
	default:
		return ((int (*)(char *, uint32_t, uint64_t *, uint32_t *))f)(memory_at(a[0]), (uint32_t)a[1], memory_at(a[2]), memory_at(a[3]));
	}
}
*/
import "C"

import (
	"fmt"
	"unsafe"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/dl"
)

// native is one loaded libamd_smi and the functions found in it. It is never unloaded, as
// C++ libraries do not survive that reliably.
type native struct {
	path     string
	function [functionCount]unsafe.Pointer // nil: the library lacks it
	memory   *memory                       // C's, as the library keeps pointers into it during a call
}

// The Go side of the signatures.
const _ = -(uint(signatures) ^ C.SIGNATURES)

// loadNative loads the first of names and looks every function up.
// Errors: that of dl.Open; collector.ErrNotLoaded if it lacks what nothing works without.
func loadNative(names []string) (*native, error) {
	l, err := dl.Open(names)
	if err != nil {
		return nil, err
	}
	n := &native{path: l.Path()}
	for f, d := range functions {
		p, err := l.Lookup(d.name)
		if err == nil {
			n.function[f] = p
		} else if d.required {
			_ = l.Close() // its error is of no use
			return nil, fmt.Errorf("%w: %w", collector.ErrNotLoaded, err)
		}
	}
	n.memory = (*memory)(C.calloc(1, C.size_t(unsafe.Sizeof(memory{})))) // calloc does not return if there is none
	return n, nil
}

// at is the address of C's memory.
func at[T any](p *T) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }

func (n *native) has(f function) bool { return n.function[f] != nil }

func (n *native) call(f function, a [7]uint64) status {
	return status(C.smi_call(n.function[f], C.uint32_t(functions[f].signature), (*C.uint64_t)(unsafe.Pointer(&a[0]))))
}

// free releases the memory. No call may be in progress.
func (n *native) free() {
	C.free(unsafe.Pointer(n.memory))
	n.memory = nil
}
