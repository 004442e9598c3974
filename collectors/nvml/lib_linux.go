//go:build linux && cgo

package nvml

/*
#include "ask.h"
#include "batch.h"
#include "entry.h"
*/
import "C"

import (
	"errors"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/pkg/dl"
)

// The shapes of calls.go are those of batch.h: an index out of range here does
// not compile.
var (
	_ = [1]struct{}{}[shapeUint-C.WG_UINT]
	_ = [1]struct{}{}[shapeMask64-C.WG_MASK64]
	_ = [1]struct{}{}[shapeMemoryV2-C.WG_MEMORY_V2]
	_ = [1]struct{}{}[shapeCountOf-C.WG_COUNT_OF]
	_ = [1]struct{}{}[shapeUnrepairable-C.WG_UNREPAIRABLE]
	_ = [1]struct{}{}[shapeLicence-C.WG_LICENCE]
	_ = [1]struct{}{}[shapeSystemCC-C.WG_SYSTEM_CC]
	_ = [1]struct{}{}[shapeVGPULicence-C.WG_VGPU_LICENCE]
	_ = [1]struct{}{}[numShapes-C.WG_SHAPES]
)

// batch is calls and field values that are made in one crossing. Its memory is
// C's, so that nothing has to be pinned or copied, and is freed by close; nothing
// may be called after that.
type batch struct {
	c      *C.struct_wg_batch
	calls  []C.struct_wg_call
	values []C.struct_wg_value
	slots  []C.struct_wg_slot
	meters []C.struct_wg_meter
}

// layout is how a batch is made.
type layout struct {
	device      uintptr // whose field values are asked
	fieldValues unsafe.Pointer
	meter       int // of nvmlDeviceGetFieldValues
	calls       []plannedCall
	values      []plannedValue
	slots       int
	meters      int
}

type plannedCall struct {
	fn     unsafe.Pointer
	device uintptr
	arg    [3]uint32
	shape  shape
	slot   int
	meter  int
}

type plannedValue struct {
	id, scope uint32
	slot      int
}

// binding is a call as this library has it; the zero one if it has not.
type binding struct {
	fn    unsafe.Pointer
	shape shape
	name  string
}

// newBatch makes a batch of which nothing is due.
func newBatch(l layout) (*batch, error) {
	c := C.wg_new(C.uint32_t(len(l.calls)), C.uint32_t(len(l.values)), C.uint32_t(l.slots), C.uint32_t(l.meters))
	if c == nil {
		return nil, errors.New("no memory for a batch of calls")
	}
	c.dev = C.uint64_t(l.device)
	c.field_values = C.uint64_t(uintptr(l.fieldValues))
	c.values_meter = C.uint32_t(l.meter)
	b := &batch{
		c:      c,
		calls:  unsafe.Slice(c.call, len(l.calls)),
		values: unsafe.Slice(c.value, len(l.values)),
		slots:  unsafe.Slice(c.slot, l.slots),
		meters: unsafe.Slice(c.meter, l.meters),
	}
	for i, p := range l.calls {
		b.calls[i] = C.struct_wg_call{
			fn: C.uint64_t(uintptr(p.fn)), dev: C.uint64_t(p.device),
			arg:   [3]C.uint32_t{C.uint32_t(p.arg[0]), C.uint32_t(p.arg[1]), C.uint32_t(p.arg[2])},
			shape: C.uint32_t(p.shape), slot: C.uint32_t(p.slot),
			results: C.uint32_t(p.shape.results()), meter: C.uint32_t(p.meter),
		}
	}
	for i, p := range l.values {
		b.values[i] = C.struct_wg_value{id: C.uint32_t(p.id), scope: C.uint32_t(p.scope), slot: C.uint32_t(p.slot)}
	}
	return b, nil
}

// clear makes nothing due.
func (b *batch) clear() {
	for i := range b.calls {
		b.calls[i].due = 0
	}
	for i := range b.values {
		b.values[i].due = 0
	}
}

func (b *batch) wantCall(i int)  { b.calls[i].due = 1 }
func (b *batch) wantValue(i int) { b.values[i].due = 1 }

// run makes what is due. Its answer is SUCCESS, or what made the rest pointless.
// It may hang where the driver does.
func (b *batch) run() nvml.Return { return nvml.Return(C.wg_run(b.c)) }

// result is the newest result in a slot.
func (b *batch) result(slot int) (value float64, code nvml.Return) {
	s := &b.slots[slot]
	return float64(s.value), nvml.Return(s.code)
}

// asked reports whether the newest run got to a slot.
func (b *batch) asked(slot int) bool { return b.slots[slot].made != 0 }

// stamp is when the driver says that it took a field value, in µs since 1970, and
// when it was asked, in ns of the monotonic clock.
func (b *batch) stamp(value int) (driverMicros, monotonicNanos int64) {
	return int64(b.values[value].stamp), int64(b.c.values_at)
}

// wide reports whether the driver gave a field value as 64 bits.
func (b *batch) wide(value int) bool {
	switch nvml.ValueType(b.values[value]._type) {
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG, nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return true
	}
	return false
}

// cost is what the calls of a meter have cost in the newest run.
func (b *batch) cost(meter int) (count, nanos uint64) {
	m := &b.meters[meter]
	return uint64(m.count), uint64(m.nanos)
}

// close frees the batch's memory.
func (b *batch) close() {
	C.wg_free(b.c)
	*b = batch{}
}

// askP2P asks for the status between two GPUs; it is minus the error if there is none.
func askP2P(fn unsafe.Pointer, a, b uintptr) int {
	return int(C.wg_ask_p2p(fn, C.uintptr_t(a), C.uintptr_t(b)))
}

// askLinks asks for the state of a GPU's NVLinks.
func askLinks(fn unsafe.Pointer, gpu uintptr) linkStates {
	s := C.wg_ask_links(fn, C.uintptr_t(gpu))
	return linkStates{uint64(s.active), uint64(s.known)}
}

// mostVGPUs is more than any GPU can run.
const mostVGPUs = 128

// activeVGPUs lists the vGPUs that run on a GPU, as nvmlVgpuInstance_t.
func activeVGPUs(l *dl.Library, gpu uintptr) ([]uint32, nvml.Return) {
	fn, err := l.Lookup("nvmlDeviceGetActiveVgpus")
	if err != nil {
		return nil, nvml.ERROR_FUNCTION_NOT_FOUND
	}
	ids := make([]uint32, mostVGPUs)
	count := C.uint32_t(len(ids))
	code := nvml.Return(C.wg_vgpus(fn, C.uint64_t(gpu), (*C.uint32_t)(&ids[0]), &count))
	return ids[:min(int(count), len(ids))], code
}

// vgpuUUID asks a vGPU for its UUID, "" if that is not to be had.
func vgpuUUID(l *dl.Library, vgpu uint32) string {
	fn, err := l.Lookup("nvmlVgpuInstanceGetUUID")
	if err != nil {
		return ""
	}
	var buf [96]C.char // NVML wants 80
	if code := nvml.Return(C.wg_vgpu_uuid(fn, C.uint32_t(vgpu), &buf[0], C.uint32_t(len(buf)-1))); code != nvml.SUCCESS {
		return ""
	}
	return C.GoString(&buf[0])
}

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
		return nvml.Return(C.wg_init_with_flags(f, initNoGPUs))
	}
	f, err := l.Lookup("nvmlInit_v2")
	if err != nil {
		return nvml.ERROR_FUNCTION_NOT_FOUND
	}
	return nvml.Return(C.wg_call(f))
}

// shutdown calls nvmlShutdown. The last of as many as were initialised closes
// NVML's descriptors.
func shutdown(l *dl.Library) nvml.Return {
	f, err := l.Lookup("nvmlShutdown")
	if err != nil {
		return nvml.ERROR_FUNCTION_NOT_FOUND
	}
	return nvml.Return(C.wg_call(f))
}

// firstOf is the address of the first of these functions that the library has, nil
// if it has none.
func firstOf(l *dl.Library, names []generation) unsafe.Pointer {
	for _, name := range names {
		if f, err := l.Lookup(name.symbol); err == nil {
			return f
		}
	}
	return nil
}

// textOf calls a function that fills a buffer with a text. Those of driver and
// library version need 80 bytes (NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE).
func textOf(l *dl.Library, symbol string) (string, nvml.Return) {
	f, err := l.Lookup(symbol)
	if err != nil {
		return "", nvml.ERROR_FUNCTION_NOT_FOUND
	}
	var buf [96]C.char
	code := nvml.Return(C.wg_text(f, &buf[0], C.uint(len(buf)-1))) // the last byte stays 0
	if code != nvml.SUCCESS {
		return "", code
	}
	return C.GoString(&buf[0]), nvml.SUCCESS
}
