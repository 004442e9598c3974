//go:build linux && cgo

package main

/*
// glibc before 2.34 keeps dlopen in libdl.
#cgo CFLAGS: -std=c11 -Wall -Wextra -Werror
#cgo LDFLAGS: -ldl
#include "cuda.h"
*/
import "C"

import "errors"

// openCUDA loads libcuda and lists its devices. The C strings made here and in multiply are never freed.
func openCUDA(library string) (out []cudaDevice, err error) {
	var devices [64]C.struct_gpucheck_device
	var message [256]C.char
	n := C.gpucheck_open(C.CString(library), &devices[0], C.int(len(devices)), &message)
	if n < 0 {
		return nil, errors.New(C.GoString(&message[0]))
	}
	for i, d := range devices[:n] {
		out = append(out, cudaDevice{i, C.GoString(&d.pci[0]), int(d.major)})
	}
	return out, nil
}

// multiply returns when the load is stopped. It is one call, so it stays on its thread, as a CUDA context must.
func multiply(k kernel, d cudaDevice) error {
	var message [256]C.char
	if C.gpucheck_run(C.int(d.ordinal), C.int(k.elementSize), C.CString(k.ptx), C.CString(k.function), &message) != 0 {
		return errors.New(C.GoString(&message[0]))
	}
	return nil
}

func setStop(stop bool) { C.gpucheck_stop(C.bool(stop)) }
