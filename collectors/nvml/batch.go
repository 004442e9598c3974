//go:build linux && cgo

package nvml

import (
	"encoding/binary"
	"math"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/pkg/collector"
)

// meter adds up what one kind of call has cost. Concurrent use is safe.
type meter struct {
	call         string
	count, nanos atomic.Int64
}

func (m *meter) add(since time.Time) {
	m.count.Add(1)
	m.nanos.Add(int64(time.Since(since)))
}

func (m *meter) cost() collector.CallCost {
	return collector.CallCost{Call: m.call, Count: uint64(m.count.Load()), Time: time.Duration(m.nanos.Load())}
}

// batch asks a GPU, its instances, links and vGPUs for what cells need: each call once
// however many cells share it, and all field values in one call.
type batch struct {
	gpu    device // whose field values are asked for
	calls  []plannedCall
	fields []plannedField
	asked  map[question]int // index into calls or fields
	meters []*meter
	values *meter // of fields

	scratch []nvml.FieldValue
	epoch   time.Time
	at      time.Duration // since epoch, when the newest field values came
}

// question is what is asked of which device.
type question struct {
	call *call
	arg  [3]uint32
	of   device
}

type plannedCall struct {
	ask
	arg  [3]uint32
	out  []float64
	code nvml.Return
	due  bool
	cost *meter
}

type plannedField struct {
	id, scope uint32
	value     float64
	code      nvml.Return
	wide      bool  // the driver gave 64 bits
	stamp     int64 // when the driver says it took it, µs since 1970, 0 if it does not say
	due       bool
}

// input is one result that a cell is made of.
type input struct {
	term  term
	field bool
	unit  int // index into the batch's calls or fields
}

func newBatch(gpu device) *batch {
	return &batch{gpu: gpu, asked: map[question]int{}, epoch: time.Now()}
}

// add plans what a term needs; false if this library does not have the call.
func (b *batch) add(t term, of device, link uint32) (input, bool) {
	in := input{term: t, field: t.call == getFieldValues}
	for i, a := range t.arg {
		if a == ThisLink {
			t.arg[i] = link
		}
	}
	bound, ok := of.bind(t.call)
	if !ok || t.pick >= bound.results {
		return input{}, false
	}
	if in.field {
		if t.arg[0], ok = of.field(t.arg[0]); !ok {
			return input{}, false
		}
	}
	q := question{t.call, t.arg, of}
	unit, known := b.asked[q]
	switch {
	case known:
	case in.field:
		unit = len(b.fields)
		b.fields = append(b.fields, plannedField{id: t.arg[0], scope: t.arg[1]})
		b.values = b.meter(bound.name)
	default:
		unit = len(b.calls)
		b.calls = append(b.calls, plannedCall{ask: bound, arg: t.arg, out: make([]float64, bound.results), cost: b.meter(bound.name)})
	}
	b.asked[q], in.unit = unit, unit
	return in, true
}

func (b *batch) meter(call string) *meter {
	for _, m := range b.meters {
		if m.call == call {
			return m
		}
	}
	b.meters = append(b.meters, &meter{call: call})
	return b.meters[len(b.meters)-1]
}

// clear makes nothing due.
func (b *batch) clear() {
	for i := range b.calls {
		b.calls[i].due = false
	}
	for i := range b.fields {
		b.fields[i].due = false
	}
}

func (b *batch) want(in input) {
	if in.field {
		b.fields[in.unit].due = true
	} else {
		b.calls[in.unit].due = true
	}
}

// run makes the calls that are due. It stops at the first answer that concerns
// all of them (the GPU is lost, the driver is gone) and returns that, else SUCCESS.
// It may hang when the driver does.
func (b *batch) run() nvml.Return {
	for i := range b.calls {
		c := &b.calls[i]
		if !c.due {
			continue
		}
		start := time.Now()
		c.code = c.do(c.arg, c.out)
		c.cost.add(start)
		if isFatal(c.code) {
			return c.code
		}
	}
	return b.askFields()
}

// fieldsAtOnce is how many field values one call asks for. DCGM asks for as many as there
// are fields (NVML_FI_MAX, 303 in CUDA 13.3) in one.
const fieldsAtOnce = 256

// askFields asks for the fields that are due, in as few calls as can be.
func (b *batch) askFields() nvml.Return {
	b.scratch = b.scratch[:0]
	for i := range b.fields {
		if f := &b.fields[i]; f.due {
			// NVML may leave a field as it was, all of ECC's if ECC is off (NVIDIA bug
			// 2009232), so what it is before the call is "not supported".
			b.scratch = append(b.scratch, nvml.FieldValue{FieldId: f.id, ScopeId: f.scope, NvmlReturn: uint32(nvml.ERROR_NOT_SUPPORTED)})
		}
	}
	if len(b.scratch) == 0 {
		return nvml.SUCCESS
	}
	all := nvml.SUCCESS
	for rest := b.scratch; len(rest) > 0 && all == nvml.SUCCESS; rest = rest[min(fieldsAtOnce, len(rest)):] {
		start := time.Now()
		all = b.gpu.values(rest[:min(fieldsAtOnce, len(rest))])
		b.values.add(start)
	}
	b.at = time.Since(b.epoch)
	stop, n := nvml.SUCCESS, 0
	for i := range b.fields {
		f := &b.fields[i]
		if !f.due {
			continue
		}
		v := &b.scratch[n]
		n++
		if f.code = all; all == nvml.SUCCESS {
			f.code = nvml.Return(v.NvmlReturn)
			f.stamp = v.Timestamp
			f.value, f.wide = decode(v)
		}
		if stop == nvml.SUCCESS && isFatal(f.code) {
			stop = f.code
		}
	}
	return stop
}

// decode takes the number of a field value, NaN for one that is not available. The
// type is not always right: NVML leaves it at 0, which is double, for ECC counts
// (NVIDIA bug 2032468) and the memory's temperature, as comments in DCGM's
// DcgmCacheManager.cpp say. Integers look like subnormal doubles then, which no
// reading is.
func decode(f *nvml.FieldValue) (v float64, wide bool) {
	bits := binary.NativeEndian.Uint64(f.Value[:])
	low := binary.NativeEndian.Uint32(f.Value[:])
	switch nvml.ValueType(f.ValueType) {
	case nvml.VALUE_TYPE_DOUBLE:
		if bits < 1<<52 {
			return float64(bits), false
		}
		return math.Float64frombits(bits), false
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return known32(low), false
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return known64(bits), true
	case nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return float64(int64(bits)), true
	case nvml.VALUE_TYPE_SIGNED_INT:
		return float64(int32(low)), false
	case nvml.VALUE_TYPE_UNSIGNED_SHORT:
		return float64(binary.NativeEndian.Uint16(f.Value[:])), false
	}
	return math.NaN(), false // of a type to come
}

// result is the newest answer to an input; NaN if there is no value.
func (b *batch) result(in input) (float64, nvml.Return) {
	var v float64
	var code nvml.Return
	if in.field {
		v, code = b.fields[in.unit].value, b.fields[in.unit].code
	} else {
		v, code = b.calls[in.unit].out[in.term.pick], b.calls[in.unit].code
	}
	if code != nvml.SUCCESS {
		return math.NaN(), code
	}
	return v, code
}

func (b *batch) costs() (out []collector.CallCost) {
	for _, m := range b.meters {
		out = append(out, m.cost())
	}
	return out
}
