//go:build linux && cgo

package nvml

/*
#include "batch.h"
*/
import "C"

import (
	"errors"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
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
	_ = [1]struct{}{}[numShapes-C.WG_SHAPES]
)

// codeNoValue is a code beside NVML's: the call went well, but what it gave is the
// mark of a value that is not available, or cannot be told exactly.
const codeNoValue = nvml.Return(C.WG_NO_VALUE)

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
	c := C.wg_new(C.uint32_t(len(l.calls)), C.uint32_t(len(l.values)), C.uint32_t(l.slots), C.uint32_t(l.meters)) //nolint:gosec // a few hundred
	if c == nil {
		return nil, errors.New("no memory for a batch of calls")
	}
	c.dev = C.uint64_t(l.device)
	c.field_values = C.uint64_t(uintptr(l.fieldValues))
	c.values_meter = C.uint32_t(l.meter) //nolint:gosec // a few
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
			shape: C.uint32_t(p.shape), slot: C.uint32_t(p.slot), //nolint:gosec // small
			results: C.uint32_t(p.shape.results()), meter: C.uint32_t(p.meter), //nolint:gosec // small
		}
	}
	for i, p := range l.values {
		b.values[i] = C.struct_wg_value{id: C.uint32_t(p.id), scope: C.uint32_t(p.scope), slot: C.uint32_t(p.slot)} //nolint:gosec // small
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
	switch nvml.ValueType(b.values[value]._type) { //nolint:gosec // an enum
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
