//go:build linux && cgo

package rocm

/*
#cgo CFLAGS: -std=c11 -Wall -Wextra
#include "smi.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/dl"
)

// smiLibrary is one loaded librocm_smi64 and the functions found in it. It is
// never unloaded: a call that hangs may be inside it, and loading the same file
// again yields the same copy.
type smiLibrary struct {
	path  string
	table C.struct_smi_table // holds no Go pointers
}

// loadSMI loads the first of names and looks every function up.
// Errors: collector.ErrNotLoaded, wrapped, where there is no such library or it
// lacks what nothing works without.
func loadSMI(names []string) (*smiLibrary, error) {
	l, err := dl.Open(names)
	if err != nil {
		return nil, notLoaded(names, err)
	}
	lib := &smiLibrary{path: l.Path()}
	for f, name := range smiFunctions() {
		p, err := l.Lookup(name)
		if err == nil {
			lib.table.function[f] = p
			continue
		}
		if slices.Contains(smiRequired(), smiFunction(f)) {
			return nil, errors.Join(fmt.Errorf("load ROCm SMI: %w: %w", collector.ErrNotLoaded, err), l.Close())
		}
	}
	// rsmi_version_get says 1.0.0 in a distribution's build and the soname is no
	// better; this function came together with the new structs.
	if lib.has(smiPower) {
		lib.table.rocm6 = 1
	}
	return lib, nil
}

// The Go side of what smi.h shares.
const (
	_ = -(unsafe.Sizeof(smiAsk{}) ^ C.sizeof_struct_smi_ask)
	_ = -(unsafe.Sizeof(smiAnswer{}) ^ C.sizeof_struct_smi_answer)
	_ = -(uint(smiFunctionCount) ^ C.SMI_FUNCTIONS)
)

// has reports whether the library has the function.
func (l *smiLibrary) has(f smiFunction) bool { return l.table.function[f] != nil }

// start is rsmi_init. It may hang.
func (l *smiLibrary) start(flags uint64) smiStatus {
	return smiStatus(C.smi_init(&l.table, C.uint64_t(flags)))
}

// stop is rsmi_shut_down. Calls for devices must have ended.
func (l *smiLibrary) stop() smiStatus { return smiStatus(C.smi_shut_down(&l.table)) }

// devices is how many there are since the last start.
func (l *smiLibrary) devices() (uint32, smiStatus) {
	var n C.uint32_t
	s := smiStatus(C.smi_num_devices(&l.table, &n))
	return uint32(n), s
}

// pciID tells which GPU an index means.
func (l *smiLibrary) pciID(device uint32) (uint64, smiStatus) {
	var v C.uint64_t
	s := smiStatus(C.smi_pci_id(&l.table, C.uint32_t(device), &v))
	return uint64(v), s
}

// batch makes all calls for one device in one crossing.
// Shape: len(answers) = len(asks). It allocates nothing.
func (l *smiLibrary) batch(device uint32, asks []smiAsk, answers []smiAnswer) {
	if len(asks) == 0 {
		return
	}
	_ = answers[len(asks)-1]
	C.smi_batch(&l.table, C.uint32_t(device), (*C.struct_smi_ask)(unsafe.Pointer(&asks[0])),
		(*C.struct_smi_answer)(unsafe.Pointer(&answers[0])), C.uint32_t(len(asks)))
}
