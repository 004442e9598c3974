//go:build linux && cgo

package nvml

/*
// Functions of NVML that are called by address, declared after nvml.h of NVML 13.
// nvmlReturn_t is an enum of int size, a device handle a pointer.
typedef enum { WG_SUCCESS = 0, WG_UNKNOWN = 999 } wg_return;
_Static_assert(sizeof(wg_return) == sizeof(int), "nvmlReturn_t");

// nvmlInitWithFlags
static int wg_init_with_flags(void *f, unsigned int flags) { return (int)((wg_return (*)(unsigned int))f)(flags); }

// nvmlInit_v2, nvmlShutdown
static int wg_call(void *f) { return (int)((wg_return (*)(void))f)(); }

// nvmlSystemGetDriverVersion, nvmlSystemGetNVMLVersion
static int wg_text(void *f, char *buf, unsigned int size) { return (int)((wg_return (*)(char *, unsigned int))f)(buf, size); }

// nvmlDeviceGet…RunningProcesses_v2 and _v3; with no buffer they say how many there are.
static int wg_list(void *f, void *dev, unsigned int *count, void *infos)
{
	return (int)((wg_return (*)(void *, unsigned int *, void *))f)(dev, count, infos);
}

// nvmlDeviceGetProcessesUtilizationInfo
struct wg_samples {
	unsigned int version, count;
	unsigned long long since;
	void *samples;
};
_Static_assert(sizeof(struct wg_samples) == 24, "nvmlProcessesUtilizationInfo_v1_t");

static int wg_busy(void *f, void *dev, unsigned long long since, unsigned int *count, void *samples)
{
	struct wg_samples q = {sizeof q | 1u << 24, *count, since, samples};
	int code = (int)((wg_return (*)(void *, struct wg_samples *))f)(dev, &q);
	*count = q.count;
	return code;
}

// nvmlDeviceGetSamples; head is the type of the values and how many there are
static int wg_kept(void *f, void *dev, int kind, unsigned long long since, void *head, void *samples)
{
	unsigned int *h = head;
	return (int)((wg_return (*)(void *, int, unsigned long long, unsigned int *, unsigned int *, void *))f)(dev, kind, since, h, h + 1, samples);
}

// nvmlDeviceGetRetiredPages
static int wg_pages(void *f, void *dev, unsigned int cause, unsigned int *count, unsigned long long *pages)
{
	return (int)((wg_return (*)(void *, unsigned int, unsigned int *, unsigned long long *))f)(dev, cause, count, pages);
}

// nvmlDeviceGetPlatformInfo, nvmlDeviceGetUnrepairableMemoryFlag_v1
static int wg_struct(void *f, void *dev, void *p) { return (int)((wg_return (*)(void *, void *))f)(dev, p); }
*/
import "C"

import (
	"reflect"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/collectors/internal/dl"
)

// initNoGPUs is NVML_INIT_FLAG_NO_GPUS: a driver without GPUs is not an error, so that it can be told apart from a
// missing driver.
//
// NVML_INIT_FLAG_NO_ATTACH, with which not even nvmlDeviceGetHandleByIndex attaches to a GPU, is not set: before driver
// 590.37, and in 600 to 610, it makes nvmlDeviceGetCount return 0 (DCGM falls back for the same reason, see
// DcgmNvmlSystemEventThread::Init in its DcgmHostEngineHandler.cpp). It is not needed either: since nvmlInit_v2 the
// driver attaches to each GPU when its handle is requested, so a broken GPU does not fail the initialisation.
const initNoGPUs = 1

// initialize calls nvmlInitWithFlags, or nvmlInit_v2 if that is missing. NVML counts initialisations: each success
// needs a shutdown. It may hang when the driver does. A library that has neither function is not NVML.
func initialize(l *dl.Library) nvml.Return {
	if f, err := l.Lookup("nvmlInitWithFlags"); err == nil {
		return nvml.Return(C.wg_init_with_flags(f, initNoGPUs))
	}
	return callNamed(l, "nvmlInit_v2", func(f unsafe.Pointer) C.int { return C.wg_call(f) })
}

// shutdown calls nvmlShutdown. NVML closes its descriptors at the last shutdown.
func shutdown(l *dl.Library) nvml.Return {
	return callNamed(l, "nvmlShutdown", func(f unsafe.Pointer) C.int { return C.wg_call(f) })
}

// callNamed calls a function by its address.
func callNamed(l *dl.Library, symbol string, call func(f unsafe.Pointer) C.int) nvml.Return {
	f, err := l.Lookup(symbol)
	if err != nil {
		return nvml.ERROR_FUNCTION_NOT_FOUND
	}
	return nvml.Return(call(f))
}

// textOf calls a function that fills a text buffer. Driver and library versions need 80 bytes
// (NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE).
func textOf(l *dl.Library, symbol string) (string, nvml.Return) {
	var buf [96]C.char
	code := callNamed(l, symbol, func(f unsafe.Pointer) C.int { return C.wg_text(f, &buf[0], C.uint(len(buf)-1)) }) // the last byte stays 0
	if code != nvml.SUCCESS {
		return "", code
	}
	return C.GoString(&buf[0]), nvml.SUCCESS
}

// raw returns the nvmlDevice_t of a device, nil if go-nvml did not create it. It is the only, exported, member of
// go-nvml's type, which has no accessor for it.
func raw(d nvml.Device) unsafe.Pointer {
	v := reflect.ValueOf(d)
	if v.Kind() != reflect.Struct || v.NumField() != 1 || v.Field(0).Kind() != reflect.Pointer {
		return nil
	}
	return v.Field(0).UnsafePointer()
}

// listProcesses calls the process list function f with room for count entries in buf, and returns the driver's number
// of entries. With an empty buf it only counts them.
func listProcesses(f unsafe.Pointer, d nvml.Device, buf []byte, count int) (int, nvml.Return) {
	n := C.uint(count)
	code := C.wg_list(f, raw(d), &n, unsafe.Pointer(unsafe.SliceData(buf)))
	return int(n), nvml.Return(code)
}

// listBusy calls nvmlDeviceGetProcessesUtilizationInfo at f, as listProcesses does. go-nvml's method passes no buffer
// for samples.
func listBusy(f unsafe.Pointer, d nvml.Device, since uint64, buf []byte, count int) (int, nvml.Return) {
	n := C.uint(count)
	code := C.wg_busy(f, raw(d), C.ulonglong(since), &n, unsafe.Pointer(&buf[0]))
	return int(n), nvml.Return(code)
}

// newSamplesReader returns a reader that calls nvmlDeviceGetSamples at f. go-nvml's method makes two calls and allocates.
func newSamplesReader(f unsafe.Pointer, d nvml.Device) samplesReader {
	dev, head := raw(d), new([2]uint32)
	return func(kind nvml.SamplingType, since uint64, into []nvml.Sample) (int, nvml.ValueType, nvml.Return) {
		head[0], head[1] = 0, uint32(len(into))
		code := C.wg_kept(f, dev, C.int(kind), C.ulonglong(since), unsafe.Pointer(head), unsafe.Pointer(&into[0]))
		return int(head[1]), nvml.ValueType(head[0]), nvml.Return(code)
	}
}

// countRetiredPages calls nvmlDeviceGetRetiredPages with more room than the 64 pages that a driver retires, and fails if
// the driver claims more. go-nvml allocates as much memory as the driver asks for, and slices its buffer by the count
// that the driver returns.
func countRetiredPages(l *library, d nvml.Device, cause uint32) (int, nvml.Return) {
	var room [512]C.ulonglong
	n := C.uint(len(room))
	code := callNamed(l.dl, "nvmlDeviceGetRetiredPages", func(f unsafe.Pointer) C.int { return C.wg_pages(f, raw(d), C.uint(cause), &n, &room[0]) })
	if code == nvml.SUCCESS && int(n) > len(room) {
		code = nvml.ERROR_UNKNOWN
	}
	return int(n), code
}

// platformInfo calls nvmlDeviceGetPlatformInfo with the second version of its struct. go-nvml uses the first, where the
// serial number has another meaning.
func platformInfo(l *library, d nvml.Device) (p nvml.PlatformInfo, code nvml.Return) {
	p.Version = nvml.STRUCT_VERSION(p, 2)
	code = callNamed(l.dl, "nvmlDeviceGetPlatformInfo", func(f unsafe.Pointer) C.int { return C.wg_struct(f, raw(d), unsafe.Pointer(&p)) })
	return p, code
}

// unrepairableMemory calls nvmlDeviceGetUnrepairableMemoryFlag_v1. go-nvml passes 4 bytes, as its nvml.h declares; DCGM
// passes a longer struct of another version. This buffer holds either.
func unrepairableMemory(l *library, d nvml.Device) (bool, nvml.Return) {
	var words [16]C.uint // the flag is the first word
	code := callNamed(l.dl, "nvmlDeviceGetUnrepairableMemoryFlag_v1", func(f unsafe.Pointer) C.int { return C.wg_struct(f, raw(d), unsafe.Pointer(&words[0])) })
	return words[0] != 0, code
}
