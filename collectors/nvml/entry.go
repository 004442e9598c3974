//go:build linux && cgo

package nvml

/*
// What is called before go-nvml may see the library, by address. Declared after
// nvml.h of NVML 13 (nvmlReturn_t is an enum of int size).

typedef int (*nvml_init_flags)(unsigned int);
typedef int (*nvml_void)(void);
typedef int (*nvml_text)(char *, unsigned int);

_Static_assert(sizeof(enum {nvml_success}) == sizeof(int), "nvmlReturn_t");

static int call_init_flags(void *f, unsigned int flags) { return ((nvml_init_flags)f)(flags); }
static int call_void(void *f) { return ((nvml_void)f)(); }
static int call_text(void *f, char *buf, unsigned int size) { return ((nvml_text)f)(buf, size); }
*/
import "C"

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/pkg/dl"
)

// initNoGPUs is NVML_INIT_FLAG_NO_GPUS: a driver without GPUs is no failure, so
// that it can be told apart from no driver.
//
// NVML_INIT_FLAG_NO_ATTACH, which would keep even nvmlDeviceGetHandleByIndex from
// attaching to a GPU, is not given: before driver 590.37, and in 600 to 610, it
// makes nvmlDeviceGetCount answer 0 (DCGM falls back for the same reason, see
// DcgmNvmlSystemEventThread::Init in its DcgmHostEngineHandler.cpp). Nor is it
// needed: since nvmlInit_v2 GPUs are attached one by one when their handle is
// asked for, so a broken one does not fail the initialisation.
const initNoGPUs = 1

// initialize calls nvmlInitWithFlags, or nvmlInit_v2 where that is missing. NVML
// counts: each success needs a shutdown. It may hang where the driver does.
// A library that has neither is not NVML.
func initialize(l *dl.Library) nvml.Return {
	if f, err := l.Lookup("nvmlInitWithFlags"); err == nil {
		return nvml.Return(C.call_init_flags(f, initNoGPUs))
	}
	f, err := l.Lookup("nvmlInit_v2")
	if err != nil {
		return nvml.ERROR_FUNCTION_NOT_FOUND
	}
	return nvml.Return(C.call_void(f))
}

// shutdown calls nvmlShutdown. The last of as many as were initialised closes
// NVML's descriptors.
func shutdown(l *dl.Library) nvml.Return {
	f, err := l.Lookup("nvmlShutdown")
	if err != nil {
		return nvml.ERROR_FUNCTION_NOT_FOUND
	}
	return nvml.Return(C.call_void(f))
}

// textOf calls a function that fills a buffer with a text. Those of driver and
// library version need 80 bytes (NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE).
func textOf(l *dl.Library, symbol string) (string, nvml.Return) {
	f, err := l.Lookup(symbol)
	if err != nil {
		return "", nvml.ERROR_FUNCTION_NOT_FOUND
	}
	var buf [96]C.char
	code := nvml.Return(C.call_text(f, &buf[0], C.uint(len(buf)-1))) // the last byte stays 0
	if code != nvml.SUCCESS {
		return "", code
	}
	return C.GoString(&buf[0]), nvml.SUCCESS
}
