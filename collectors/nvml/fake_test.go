//go:build linux && cgo

package nvml

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// fakeDevice is a GPU in Go. It has the calls and field values that are set.
type fakeDevice struct {
	results map[*call]func(arg [3]uint32) ([]float64, nvml.Return)
	fields  map[uint32]float64
	code    nvml.Return   // of all field values
	hang    chan struct{} // calls return when it is closed; nil: at once
	made    int           // calls
	branch  int           // of the driver
	asked   []int         // how many field values each call asked for

	// scoped answers fields that fields does not have, by their scope.
	scoped func(id, scope uint32) (float64, nvml.Return)
}

var _ device = (*fakeDevice)(nil)

func (d *fakeDevice) bind(c *call) (ask, bool) {
	f, ok := d.results[c]
	if c == getFieldValues {
		return ask{name: c.name(), results: 1}, len(d.fields) > 0 || d.scoped != nil
	}
	return ask{name: c.name(), results: (*c)[0].results, do: func(arg [3]uint32, out []float64) nvml.Return {
		d.made++
		if d.hang != nil {
			<-d.hang
		}
		results, code := f(arg)
		copy(out, results)
		return code
	}}, ok
}

func (d *fakeDevice) field(id uint32) (uint32, bool) { return fieldOf(d.branch, id) }

func (d *fakeDevice) values(all []nvml.FieldValue) nvml.Return {
	d.made++
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

// answers makes a call answer one number.
func answersNumber(v float64, code nvml.Return) func([3]uint32) ([]float64, nvml.Return) {
	return func([3]uint32) ([]float64, nvml.Return) { return []float64{v}, code }
}

// equal wants got to be want; NaN is NaN.
func equal(t testing.TB, want, got any, what string, args ...any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateNaNs()); diff != "" {
		t.Errorf(what+" (-want +got):\n%s", append(args, diff)...)
	}
}

// bind binds fields of a device alone.
func bind(t *testing.T, d device, ids ...field.ID) part {
	t.Helper()
	p, err := newReadings(d, []target{{reader: d, level: field.GPU}}, readings(ids...), nil, unexplained())
	must(t, err)
	return p
}

// sampleAllOf samples all columns of a part.
func sampleAllOf(p part) ([]float64, error) {
	row := slices.Repeat([]float64{math.NaN()}, len(p.columns()))
	return row, p.sample(row, slices.Repeat([]bool{true}, len(row)))
}

// TestReadingsOfAFake: rows of the table are tried in order, calls are shared, and one that
// fails costs its own cells.
func TestReadingsOfAFake(t *testing.T) {
	power := nvml.SUCCESS
	d := &fakeDevice{
		results: map[*call]func([3]uint32) ([]float64, nvml.Return){
			getMemoryInfo: func([3]uint32) ([]float64, nvml.Return) {
				return []float64{80 << 20, 60 << 20, 15 << 20, 5 << 20}, nvml.SUCCESS
			},
			getPowerUsage:  func([3]uint32) ([]float64, nvml.Return) { return []float64{150000}, power },
			getTotalEnergy: answersNumber(7, nvml.SUCCESS),
		},
		fields: map[uint32]float64{82: 60},
	}
	p := bind(t, d, 250, 251, 252, 254, 155, 156, 140, 150)
	f := func(when string, calls int, want map[field.ID]float64) {
		t.Helper()
		d.made = 0
		row, err := sampleAllOf(p)
		if err != nil || d.made != calls || len(row) != len(want) {
			t.Errorf("%s: %d columns, %d calls, %v; want %d, %d", when, len(row), d.made, err, len(want), calls)
		}
		for i, c := range p.columns() {
			if w := want[c.Field]; row[i] != w && !(math.IsNaN(row[i]) && math.IsNaN(w)) {
				t.Errorf("%s: field %d is %v, want %v", when, c.Field, row[i], w)
			}
		}
	}
	want := map[field.ID]float64{250: 80, 251: 60, 252: 15, 254: 0.2, 155: 150, 156: 7, 140: 60}
	f("all well", 4, want)
	power, want[155] = nvml.ERROR_UNKNOWN, math.NaN()
	f("one call fails", 4, want)
	power = nvml.ERROR_GPU_IS_LOST
	if _, err := sampleAllOf(p); !errors.Is(err, collector.ErrDeviceLost) {
		t.Errorf("one call says that the GPU is lost: %v", err)
	}
}

// TestThroughputThatHangs: a list with nothing but PCIe throughput makes no call in its
// samples, and a GPU that hangs does not look fresh for that.
func TestThroughputThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDevice{results: map[*call]func([3]uint32) ([]float64, nvml.Return){getPCIeThroughput: answersNumber(1000, nvml.SUCCESS)}}
		p := bind(t, d, 200)
		for range 3 {
			if _, err := sampleAllOf(p); err != nil {
				t.Error(err)
			}
			time.Sleep(30 * time.Second)
			synctest.Wait()
		}
		d.hang = make(chan struct{})
		var err error
		for range 3 { // the first asks for the measurement that hangs
			_, err = sampleAllOf(p)
			time.Sleep(staleThroughput)
		}
		if !errors.Is(err, collector.ErrStalled) {
			t.Errorf("a measurement that hangs: got %v, want %v", err, collector.ErrStalled)
		}
		close(d.hang)
		synctest.Wait()
		if row, err := sampleAllOf(p); err != nil || row[0] != 1000 {
			t.Errorf("when it has returned: %v, %v", row, err)
		}
		p.close()
	})
}

// fakeBoards are GPUs by index, as a library has them.
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

// TestImplausibleCount: a library that counts more GPUs than there can be does not take
// away those that there are.
func TestImplausibleCount(t *testing.T) {
	for n, leftOut := range map[int]int{math.MaxUint32: math.MaxUint32 - 256, 257: 1, -1: math.MaxUint32 - 256, 256: 0} {
		d := discovery{lib: &fakeBoards{n: n, gpus: map[int]*gpu{0: fakeGPU(0, "GPU-a", ""), 1: fakeGPU(1, "GPU-b", "")}}, o: Options{Root: t.TempDir()}, pending: &pending{patience: time.Minute}}
		if gpus, err := d.gpus(t.Context()); err != nil || len(gpus) != 2 || d.leftOut != leftOut {
			t.Errorf("%d: %d GPUs, %v, %d left out, want %d", n, len(gpus), err, d.leftOut, leftOut)
		}
	}
}
