package collector

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/field"
)

var nan = math.NaN()

func TestWhatIsPutIsGot(t *testing.T) {
	f := func(count int, list, want []Process) {
		t.Helper()
		block := make([]float64, ProcessWidth)
		PutProcesses(block, 99, make([]Process, ProcessSlots)) // leftovers of an earlier row
		PutProcesses(block, count, list)
		before := Process{PID: 7}
		got, gotCount := GetProcesses([]Process{before}, block)
		diff := cmp.Diff(append([]Process{before}, want...), got, cmpopts.EquateNaNs())
		testkit.ErrorIf(t, diff != "" || gotCount != count, "count %d, want %d; processes (-want +got):\n%s", gotCount, count, diff)
	}
	one := []Process{{PID: 1, Memory: 0, Busy: 0}}
	f(0, nil, nil)
	f(1, one, one)
	f(2, one, one)
	f(-1, one, one)
	f(-1, nil, nil)
	f(3, []Process{{7, 1 << 37, 100, ProcessCompute}, {4194304, nan, nan, ProcessGraphics | ProcessMPS}, {9, 4096, 12.5, ProcessCompute | ProcessOccupancy}},
		[]Process{{7, 1 << 37, 100, ProcessCompute}, {4194304, nan, nan, ProcessGraphics | ProcessMPS}, {9, 4096, 12.5, ProcessCompute | ProcessOccupancy}})

	// Of 70 processes the 64 with the most memory stay, and the count shows that some are missing.
	var many, most []Process
	for i := range 70 {
		p := Process{PID: 100 + i, Memory: float64(1000 - i), Busy: 1}
		if i < 3 {
			p.Memory = nan
		} else if len(most) < ProcessSlots {
			most = append(most, p)
		}
		many = append(many, p)
	}
	f(70, many, most)
}

func TestWhatCannotBeIsLeftOut(t *testing.T) {
	f := func(pid, memory, busy, flags float64, want ...Process) {
		t.Helper()
		block := make([]float64, ProcessWidth)
		BlankProcesses(block)
		if got, count := GetProcesses(nil, block); len(got) != 0 || count >= 0 {
			t.Errorf("got %v, count %d from a blank block, want nothing and no count", got, count)
		}
		block[0] = 1
		copy(block[1:], []float64{pid, memory, busy, flags})
		got, count := GetProcesses(nil, block)
		diff := cmp.Diff(want, got, cmpopts.EquateNaNs(), cmpopts.EquateEmpty())
		testkit.ErrorIf(t, diff != "" || count != 1, "pid %v: count %d, (-want +got):\n%s", pid, count, diff)
	}
	for _, pid := range []float64{0, -1, 0.5, 4194305, math.Inf(1), math.Inf(-1), nan} {
		f(pid, 1, 1, 1)
	}
	f(5, math.Inf(1), 101, 16, Process{PID: 5, Memory: nan, Busy: nan})
	f(5, -1, -1, -1, Process{PID: 5, Memory: nan, Busy: nan})
	f(5, 1<<51, math.Inf(1), nan, Process{PID: 5, Memory: nan, Busy: nan})
}

func TestBlocks(t *testing.T) {
	var columns []Column
	columns = AppendProcessColumns(columns, 2)
	columns = AppendProcessColumns(columns, 0)
	got := testkit.Get(ProcessBlocks(3, columns))(t)
	testkit.Equal(t, "starts of blocks", []int{ProcessWidth, -1, 0}, got)
	_, err := ProcessBlocks(1, nil)
	testkit.ErrorIf(t, err != nil, "a source without columns: %v", err)
	bad := func(what string, devices int, change func(c []Column) []Column) {
		t.Helper()
		c := AppendProcessColumns(AppendProcessColumns(nil, 0), 1)
		_, err := ProcessBlocks(devices, change(c))
		testkit.ErrorIf(t, err == nil, "%s: no error", what)
	}
	bad("a column is missing", 2, func(c []Column) []Column { return c[1:] })
	bad("a column of the catalogue", 2, func(c []Column) []Column { c[5].Field = field.XIDEvent; return c })
	bad("two columns changed places", 2, func(c []Column) []Column { c[5], c[6] = c[6], c[5]; return c })
	bad("a slot of another device", 2, func(c []Column) []Column { c[5].Device = 1; return c })
	bad("a label", 2, func(c []Column) []Column { c[5].Labels = make([]Label, 1); return c })
	bad("a device too many", 1, func(c []Column) []Column { return c })
	bad("a device twice", 2, func(c []Column) []Column { return AppendProcessColumns(c[:ProcessWidth], 0) })
}

func TestPutAndGetAllocateNothing(t *testing.T) {
	block := make([]float64, ProcessWidth)
	list := make([]Process, 80)
	out := make([]Process, 0, ProcessSlots)
	if n := testing.AllocsPerRun(100, func() {
		PutProcesses(block, len(list), list)
		out, _ = GetProcesses(out[:0], block)
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// FuzzGet checks arbitrary rows, because a faulty process can write to the shared memory.
func FuzzGet(f *testing.F) {
	block := make([]float64, ProcessWidth)
	PutProcesses(block, 2, []Process{{PID: 1, Memory: 1, Busy: 1, Flags: ProcessCompute}, {PID: 2, Memory: nan, Busy: nan}})
	var seed []byte
	for _, v := range block[:9] {
		seed = binary.LittleEndian.AppendUint64(seed, math.Float64bits(v))
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		block := make([]float64, ProcessWidth)
		BlankProcesses(block)
		for i := 0; i < ProcessWidth && len(data) >= 8; i++ {
			block[i] = math.Float64frombits(binary.LittleEndian.Uint64(data))
			data = data[8:]
		}
		list, count := GetProcesses(nil, block)
		testkit.ErrorIf(t, count < -1 || count > maxPID, "count %d", count)
		for _, p := range list {
			testkit.ErrorIf(t, p.PID < 1 || p.PID > maxPID || p.Memory < 0 || p.Memory > maxMemory || p.Busy < 0 || p.Busy > 100 || p.Flags&^allFlags != 0, "got %+v", p)
		}
		again := make([]float64, ProcessWidth)
		PutProcesses(again, len(list), list)
		back, backCount := GetProcesses(nil, again)
		diff := cmp.Diff(list, back, cmpopts.EquateNaNs())
		testkit.ErrorIf(t, diff != "" || backCount != len(list), "after Put and Get (-want +got):\n%s", diff)
	})
}
