//go:build linux && cgo

package nvml

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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

func (d *fakeDevice) values(all []nvml.FieldValue) nvml.Return {
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
	if diff := cmp.Diff(want, got, cmpopts.EquateNaNs()); diff != "" {
		t.Errorf(what+" (-want +got):\n%s", append(args, diff)...)
	}
}

// bind returns a part that reads the given fields of a single device.
func bind(t *testing.T, d device, ids ...field.ID) part {
	t.Helper()
	p, err := newReadings(d, []target{{reader: d, level: field.GPU}}, readings(ids...), nil, unexplained(), nil)
	must(t, err)
	return p
}

// sampleAllOf samples all columns of a part.
func sampleAllOf(p part) ([]float64, error) {
	row := slices.Repeat([]float64{math.NaN()}, len(p.columns()))
	return row, p.sample(row, slices.Repeat([]bool{true}, len(row)))
}

// fakeBoards holds a library's GPUs by index.
type fakeBoards struct {
	n    int
	code nvml.Return
	gpus map[int]*gpu
}

func (b *fakeBoards) count() (int, nvml.Return) { return b.n, b.code }

func (b *fakeBoards) identify(index int) *gpu {
	if g := b.gpus[index]; g != nil {
		return g
	}
	g := newGPU(index)
	g.err = gpuError("nvmlDeviceGetHandleByIndex_v2", nvml.ERROR_INVALID_ARGUMENT)
	return g
}

func fakeGPU(index int, uuid, pci string) *gpu {
	g := newGPU(index)
	g.device.ID, g.device.UUID, g.device.PCIBusID = uuid, uuid, pci
	return g
}

// TestImplausibleCount checks that the real GPUs stay if the library counts more GPUs than there can be.
func TestImplausibleCount(t *testing.T) {
	for n, leftOut := range map[int]int{math.MaxUint32: math.MaxUint32 - 256, 257: 1, -1: math.MaxUint32 - 256, 256: 0} {
		d := discovery{lib: &fakeBoards{n: n, gpus: map[int]*gpu{0: fakeGPU(0, "GPU-a", ""), 1: fakeGPU(1, "GPU-b", "")}}, o: Options{Root: t.TempDir()}, pending: &pending{patience: time.Minute}}
		if gpus, err := d.gpus(t.Context()); err != nil || len(gpus) != 2 || d.leftOut != leftOut {
			t.Errorf("%d: %d GPUs, %v, %d left out, want %d", n, len(gpus), err, d.leftOut, leftOut)
		}
	}
}
