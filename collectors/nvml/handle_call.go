//go:build linux && cgo

package nvml

/*
#include "handle.h"
*/
import "C"

import "github.com/NVIDIA/go-nvml/pkg/nvml"

// rawByIndex returns the handle of a GPU as nvmlDevice_t. NVML attaches to the GPU
// in this call, which takes a second or more where persistence mode is off.
func (l *library) rawByIndex(index int) (uintptr, nvml.Return) {
	f, err := l.dl.Lookup("nvmlDeviceGetHandleByIndex_v2")
	if err != nil {
		return 0, nvml.ERROR_FUNCTION_NOT_FOUND
	}
	a := C.wg_handle_by_index(f, C.uint(index))
	return uintptr(a.handle), nvml.Return(a.code)
}

// rawInstance returns the handle of a GPU's MIG device at an index.
func (l *library) rawInstance(gpu uintptr, index int) (uintptr, nvml.Return) {
	f, err := l.dl.Lookup("nvmlDeviceGetMigDeviceHandleByIndex")
	if err != nil {
		return 0, nvml.ERROR_FUNCTION_NOT_FOUND
	}
	a := C.wg_mig_by_index(f, C.uintptr_t(gpu), C.uint(index))
	return uintptr(a.handle), nvml.Return(a.code)
}

// layoutCall returns what tells how a GPU is partitioned, as a number that changes
// with it, and 0 where the GPU does not say. It is nil where the library cannot
// tell. The result is for one goroutine at a time and allocates nothing.
func (l *library) layoutCall(gpu uintptr) func() uint64 {
	mode, err := l.dl.Lookup("nvmlDeviceGetMigMode")
	if err != nil {
		return nil
	}
	count, err := l.dl.Lookup("nvmlDeviceGetMaxMigDeviceCount")
	if err != nil {
		return nil
	}
	byIndex, err := l.dl.Lookup("nvmlDeviceGetMigDeviceHandleByIndex")
	if err != nil {
		return nil
	}
	uuid, err := l.dl.Lookup("nvmlDeviceGetUUID")
	if err != nil {
		return nil
	}
	return func() uint64 {
		return uint64(C.wg_mig_layout(mode, count, byIndex, uuid, C.uintptr_t(gpu)))
	}
}

// platformOf returns the InfiniBand GUID of a GPU and the serial number of its
// chassis.
func (l *library) platformOf(gpu uintptr) (guid uint64, serial string, ok bool) {
	f, err := l.dl.Lookup("nvmlDeviceGetPlatformInfo")
	if err != nil {
		return 0, "", false
	}
	p := C.wg_platform(f, C.uintptr_t(gpu))
	return uint64(p.guid), C.GoString(&p.serial[0]), nvml.Return(p.code) == nvml.SUCCESS
}
