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

// openCUDA loads libcuda and lists its devices. The texts that are handed to C here
// and in multiply live as long as the process.
func openCUDA(library string) ([]cudaDevice, error) {
	var message [256]C.char
	if C.gpucheck_open(C.CString(library), &message) != 0 {
		return nil, errors.New(C.GoString(&message[0]))
	}
	var out []cudaDevice
	for i := range int(C.gpucheck_count()) {
		d := C.gpucheck_device(C.int(i))
		if d.ok == 0 {
			return nil, errors.New(C.GoString(&d.message[0]))
		}
		out = append(out, cudaDevice{i, C.GoString(&d.pci[0]), 10*int(d.major) + int(d.minor)})
	}
	return out, nil
}

// multiply returns when the load is told to stop. It stays on its thread, as a
// CUDA context does, because it is one call.
func multiply(k kernel, d cudaDevice) outcome {
	r := C.gpucheck_run(C.int(d.ordinal), C.enum_gpucheck_kernel(k.number), C.CString(k.ptx))
	if r.ok == 0 {
		return outcome{device: d, err: errors.New(C.GoString(&r.message[0]))}
	}
	return outcome{device: d, teraflop: float64(r.operations) / float64(r.seconds) / 1e12}
}

func setStop(stop bool) {
	var v C.int
	if stop {
		v = 1
	}
	C.gpucheck_stop(v)
}

func runningLoads() int { return int(C.gpucheck_running()) }
