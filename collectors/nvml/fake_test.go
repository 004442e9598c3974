//go:build linux && cgo

package nvml

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp/cmpopts"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/field"
)

// fakeDevice is a GPU in Go. It supports the calls and field values that are set.
type fakeDevice struct {
	results map[*call]func(arg [3]uint32) ([]float64, nvml.Return)
	fields  map[uint32]float64
	code    nvml.Return // of a call for field values
	branch  int         // driver branch
	asked   []int       // number of field values in each call

	// scoped answers, by scope, the fields that are not in fields.
	scoped func(id, scope uint32) (float64, nvml.Return)
}

var _ device = (*fakeDevice)(nil)

func (d *fakeDevice) bind(c *call) (ask, bool) {
	f, ok := d.results[c]
	if c == getFieldValues {
		return ask{name: c.name(), results: 1}, len(d.fields) > 0 || d.scoped != nil
	}
	return ask{name: c.name(), results: (*c)[0].results, do: func(arg [3]uint32, out []float64) nvml.Return {
		results, code := f(arg)
		copy(out, results)
		return code
	}}, ok
}

func (d *fakeDevice) field(id uint32) (uint32, bool) { return fieldOf(d.branch, id) }

func (d *fakeDevice) GetFieldValues(all []nvml.FieldValue) nvml.Return {
	d.asked = append(d.asked, len(all))
	for i := range all {
		v, ok := d.fields[all[i].FieldId]
		code := nvml.SUCCESS
		if !ok && d.scoped != nil {
			v, code = d.scoped(all[i].FieldId, all[i].ScopeId)
		}
		if ok || d.scoped != nil {
			all[i].NvmlReturn, all[i].ValueType = uint32(code), uint32(nvml.VALUE_TYPE_UNSIGNED_LONG_LONG)
			binary.NativeEndian.PutUint64(all[i].Value[:], uint64(v))
		}
	}
	return d.code
}

// equal compares got with want and treats NaN as equal to NaN.
func equal(t testing.TB, want, got any, what string, args ...any) {
	t.Helper()
	testkit.Equal(t, fmt.Sprintf(what, args...), want, got, cmpopts.EquateNaNs())
}

// bind returns a part that reads the given fields of a single device.
func bind(t *testing.T, d device, ids ...field.ID) part {
	t.Helper()
	p := testkit.Get(newReadings(d, []target{{reader: d, level: field.GPU}}, readings(ids...), nil, unexplained(), nil))(t)
	return p
}

// sampleAllOf samples all columns of a part.
func sampleAllOf(p part) ([]float64, error) {
	row := slices.Repeat([]float64{math.NaN()}, len(p.columns()))
	return row, p.sample(row, slices.Repeat([]bool{true}, len(row)))
}
