//go:build linux && cgo

package nvml

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/pkg/collector"
)

// batch makes the calls that cells need on a GPU, its instances and links. Cells that need the same call share
// it, and all field values come from one call.
type batch struct {
	gpu    device // the device whose field values are read
	calls  []plannedCall
	fields []plannedField
	asked  map[question]int // index into calls or fields
	costs  *costs
	values *collector.Meter // of fields

	scratch []nvml.FieldValue
	epoch   time.Time
	at      time.Duration // since epoch, when the newest field values came
}

// question identifies one call: function, arguments and device.
type question struct {
	call   *call
	arg    [3]uint32
	reader device
}

type plannedCall struct {
	ask
	arg  [3]uint32
	out  []float64
	code nvml.Return
	due  bool
	cost *collector.Meter
}

type plannedField struct {
	id, scope uint32
	value     float64
	code      nvml.Return
	wide      bool  // the driver returned 64 bits
	stamp     int64 // the driver's timestamp in µs since 1970; 0 if the driver sets none
	due       bool
}

// input is one of the results that a cell is computed from.
type input struct {
	term  term
	field bool
	unit  int // index into the batch's calls or fields
}

func newBatch(gpu device, c *costs) *batch {
	return &batch{gpu: gpu, costs: c, asked: map[question]int{}, epoch: time.Now()}
}

// planTerm plans the call for a term. It returns false if the library lacks the call.
func (b *batch) planTerm(t term, of device, link uint32) (input, bool) {
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
		b.values = b.costs.meter(bound.name)
	default:
		unit = len(b.calls)
		b.calls = append(b.calls, plannedCall{ask: bound, arg: t.arg, out: make([]float64, bound.results), cost: b.costs.meter(bound.name)})
	}
	b.asked[q], in.unit = unit, unit
	return in, true
}

// clear marks every call as not due.
func (b *batch) clear() {
	for i := range b.calls {
		b.calls[i].due = false
	}
	for i := range b.fields {
		b.fields[i].due = false
	}
}

// run makes the due calls. It stops at the first fatal answer (GPU lost, driver gone) and returns it, else SUCCESS. It
// may hang when the driver does.
func (b *batch) run() nvml.Return {
	for i := range b.calls {
		c := &b.calls[i]
		if !c.due {
			continue
		}
		start := c.cost.Begin()
		c.code = c.do(c.arg, c.out)
		c.cost.Record(1, start)
		if isFatal(c.code) {
			return c.code
		}
	}
	return b.askFields()
}

// fieldsAtOnce is the maximum number of field values per call. DCGM asks for all fields (NVML_FI_MAX, 303 in CUDA 13.3)
// in one call.
const fieldsAtOnce = 256

// askFields reads the due fields in as few calls as possible.
func (b *batch) askFields() nvml.Return {
	b.scratch = b.scratch[:0]
	for i := range b.fields {
		if f := &b.fields[i]; f.due {
			// NVML may leave an entry unchanged, for example all ECC fields while ECC is off (NVIDIA bug 2009232), so
			// each entry starts as "not supported".
			b.scratch = append(b.scratch, nvml.FieldValue{FieldId: f.id, ScopeId: f.scope, NvmlReturn: uint32(nvml.ERROR_NOT_SUPPORTED)})
		}
	}
	if len(b.scratch) == 0 {
		return nvml.SUCCESS
	}
	all := nvml.SUCCESS
	for rest := b.scratch; len(rest) > 0 && all == nvml.SUCCESS; rest = rest[min(fieldsAtOnce, len(rest)):] {
		start := b.values.Begin()
		all = b.gpu.GetFieldValues(rest[:min(fieldsAtOnce, len(rest))])
		b.values.Record(1, start)
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

// decode returns the number in a field value, NaN if the driver marks it as not available. The type is not always
// right: comments in DCGM's DcgmCacheManager.cpp say that NVML leaves it at 0 (double) for ECC counts (NVIDIA bug
// 2032468) and for the memory temperature. Such integers look like subnormal doubles, which no real reading is.
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
	return math.NaN(), false // a type that this code does not know
}

// result returns the newest answer for an input; NaN if there is no value.
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
