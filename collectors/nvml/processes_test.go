//go:build linux && cgo

package nvml

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// processRig is a source of processes under test.
type processRig struct {
	collector.Source
	starts []int // first columns of the devices' blocks
	row    []float64
	due    []bool
}

// listed is a device's part of a row.
type listed struct {
	Count int // the library's count; −1 if unknown
	List  []collector.Process
}

func openProcesses(t testing.TB, n *nvmltest.Node) []*processRig {
	t.Helper()
	c := NewProcesses(at(n))
	sources := testkit.Get(c.Open(t.Context(), field.List{}))(t)
	t.Cleanup(func() { must(t, c.Close()) })
	var out []*processRig
	for _, s := range sources {
		starts := testkit.Get(collector.ProcessBlocks(len(s.Devices()), s.Columns()))(t)
		width := len(s.Columns())
		out = append(out, &processRig{Source: s, starts: starts, row: slices.Repeat([]float64{nan}, width), due: slices.Repeat([]bool{true}, width)})
	}
	return out
}

func (r *processRig) sample(t testing.TB) {
	t.Helper()
	must(t, r.Sample(r.row, r.due))
}

func (r *processRig) of(device int) listed {
	block := r.row[r.starts[device]:][:collector.ProcessWidth]
	list, count := collector.GetProcesses(nil, block)
	return listed{count, list}
}

func (r *processRig) want(t testing.TB, what string, device int, want listed) {
	t.Helper()
	testkit.Equal(t, what, want, r.of(device), cmpopts.EquateNaNs(), cmpopts.EquateEmpty())
}

// all returns a list that the library reports completely.
func all(list ...collector.Process) listed { return listed{len(list), list} }

// unlisted is a blank block.
var unlisted = listed{Count: -1}

func TestProcesses(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 2})
	n.Freeze(100)
	n.SetProcesses(0,
		nvmltest.Process{PID: 10, Memory: 3 << 30, SM: "60"},
		nvmltest.Process{PID: 11, Memory: 1 << 30},
		nvmltest.Process{PID: 10, Type: "G", Memory: 3 << 30},
		nvmltest.Process{PID: 12, Type: "M", NoMemory: true, SM: "20"},
		nvmltest.Process{PID: 13, Type: "G", NoMemory: true},
		nvmltest.Process{PID: 13, Type: "C", Memory: 5})
	s := openProcesses(t, n)
	testkit.FatalIf(t, len(s) != 2, "%d sources, want 2", len(s))
	for i, r := range s {
		equal(t, []collector.Device{h100(i)}, r.Devices(), "devices as the other collectors have them")
	}
	const both = collector.ProcessCompute | collector.ProcessGraphics
	s[0].sample(t)
	s[0].want(t, "how busy is not known at first", 0, all(
		collector.Process{PID: 10, Memory: 3 << 30, Busy: nan, Flags: both}, collector.Process{PID: 11, Memory: 1 << 30, Busy: nan, Flags: collector.ProcessCompute},
		collector.Process{PID: 13, Memory: 5, Busy: nan, Flags: both}, collector.Process{PID: 12, Memory: nan, Busy: nan, Flags: collector.ProcessMPS}))
	n.Advance(time.Second)
	s[0].sample(t)
	s[0].want(t, "a second later", 0, all(
		collector.Process{PID: 10, Memory: 3 << 30, Busy: 60, Flags: both}, collector.Process{PID: 11, Memory: 1 << 30, Busy: 0, Flags: collector.ProcessCompute},
		collector.Process{PID: 13, Memory: 5, Busy: 0, Flags: both}, collector.Process{PID: 12, Memory: nan, Busy: 20, Flags: collector.ProcessMPS}))
	s[1].sample(t)
	s[1].want(t, "no process there", 0, all())
	n.SetProcesses(0)
	s[0].sample(t)
	s[0].want(t, "all have gone", 0, all())
}

// TestProcessesBeyondTheRoom checks that the buffers for C and Go grow, and that a row that is too short reports the
// full count.
func TestProcessesBeyondTheRoom(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1})
	n.Freeze(5)
	var list []nvmltest.Process
	for i := range 200 {
		list = append(list, nvmltest.Process{PID: 1000 + i, Memory: uint64(i) << 20, SM: strconv.Itoa(i % 3)})
	}
	n.SetProcesses(0, list[:60]...)
	s := openProcesses(t, n)[0]
	s.sample(t)
	if got := s.of(0); got.Count != 60 || len(got.List) != 60 {
		t.Errorf("60 processes: %d of %d", len(got.List), got.Count)
	}
	n.SetProcesses(0, list...)
	n.Advance(time.Second)
	s.sample(t)
	got := s.of(0)
	testkit.FatalIf(t, got.Count != 200 || len(got.List) != collector.ProcessSlots, "200 processes: %d of %d", len(got.List), got.Count)
	for i, p := range got.List {
		pid := 1199 - i
		testkit.ErrorIf(t, p.PID != pid || p.Memory != float64(uint64(pid-1000)<<20) || p.Busy != float64((pid-1000)%3), "place %d: %+v, want process %d", i, p, pid)
	}
}

func TestProcessesOfInstances(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1, MIG: map[int][]string{0: {"3g.40gb", "1c.2g.20gb", "1c.2g.20gb"}}})
	in := n.Instances(0)
	n.SetProcesses(0,
		nvmltest.Process{PID: 21, Instance: &in[0], Memory: 100, SM: "50"},
		nvmltest.Process{PID: 22, Instance: &in[1], Memory: 200},
		nvmltest.Process{PID: 23, Instance: &in[2], NoMemory: true},
		nvmltest.Process{PID: 24, Type: "G", Memory: 7})
	n.ResetCalls()
	s := openProcesses(t, n)[0]
	p := h100(0)
	want := []collector.Device{
		p, inParent(p, field.Instance, "1", "", "3g.40gb", in[0].UUID), inParent(p, field.Instance, "3", "", "2g.20gb", ""),
		inParent(p, field.ComputeInstance, "3", "0", "2g.20gb", in[1].UUID), inParent(p, field.ComputeInstance, "3", "1", "2g.20gb", in[2].UUID),
	}
	diff := cmp.Diff(want, s.Devices())
	testkit.FatalIf(t, diff != "", "devices (-want +got):\n%s", diff)
	testkit.Equal(t, "first process of an instance that is split, whose parts have them", -1, s.starts[2])
	for range 2 {
		s.sample(t)
		s.want(t, "board", 0, all(collector.Process{PID: 24, Memory: 7, Busy: nan, Flags: collector.ProcessGraphics}))
		s.want(t, "instance", 1, all(collector.Process{PID: 21, Memory: 100, Busy: nan, Flags: collector.ProcessCompute}))
		s.want(t, "part 0", 3, all(collector.Process{PID: 22, Memory: 200, Busy: nan, Flags: collector.ProcessCompute}))
		s.want(t, "part 1", 4, all(collector.Process{PID: 23, Memory: nan, Busy: nan, Flags: collector.ProcessCompute}))
		n.Advance(time.Second)
	}
	testkit.Equal(t, "calls that MIG does not serve", uint64(0), n.Calls("nvmlDeviceGetProcessesUtilizationInfo"))
	n.SetMIG(0, "7g.80gb")
	partOf[*migPart](s).now = func() time.Time { return time.Now().Add(watchEvery) }
	err := s.Sample(s.row, s.due)
	testkit.ErrorIf(t, !errors.Is(err, collector.ErrColumnsChanged), "partitioned in another way: got %v, want %v", err, collector.ErrColumnsChanged)
}

// TestProcessesThatAreNotListed checks that processes and values that the library does not report are blank, not
// absent or 0.
func TestProcessesThatAreNotListed(t *testing.T) {
	const compute, graphics, mps = "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3"
	lists := []string{compute, graphics, mps}
	type codes map[string]string
	f := func(what string, set codes, want listed, wantErr error) {
		t.Helper()
		n := nvmltest.New(t, nvmltest.Config{GPUs: 1})
		n.Freeze(50)
		n.SetProcesses(0, nvmltest.Process{PID: 31, Memory: 9, SM: "33"}, nvmltest.Process{PID: 32, Type: "G", Memory: 8})
		s := openProcesses(t, n)[0]
		s.sample(t)
		n.Advance(time.Second)
		for name, code := range set {
			n.Return(0, name, code)
		}
		before := append([]float64(nil), s.row...)
		err := s.Sample(s.row, s.due)
		testkit.ErrorIf(t, !errors.Is(err, wantErr) || (err == nil) != (wantErr == nil), "%s: error %v, want %v", what, err, wantErr)
		if wantErr != nil {
			testkit.Equal(t, what+": row that does not change", before, s.row, cmpopts.EquateNaNs())
			return
		}
		s.want(t, what, 0, want)
	}
	trainer := func(busy float64) collector.Process {
		return collector.Process{PID: 31, Memory: 9, Busy: busy, Flags: collector.ProcessCompute}
	}
	viewer := func(busy float64) collector.Process {
		return collector.Process{PID: 32, Memory: 8, Busy: busy, Flags: collector.ProcessGraphics}
	}
	f("all is listed", nil, all(trainer(33), viewer(0)), nil)
	for _, code := range []string{"NOT_SUPPORTED", "NO_PERMISSION"} {
		set := codes{}
		for _, l := range lists {
			set[l] = code
		}
		f("no list: "+code, set, unlisted, nil)
	}
	f("no graphics on this board", codes{graphics: "NOT_SUPPORTED"}, all(trainer(33)), nil)
	f("a list that fails", codes{graphics: "UNKNOWN"}, listed{-1, []collector.Process{trainer(33)}}, nil)
	f("not ours to see", codes{compute: "NO_PERMISSION"}, listed{-1, []collector.Process{viewer(0)}}, nil)
	const busy = "nvmlDeviceGetProcessesUtilizationInfo"
	f("no samples", codes{busy: "NOT_FOUND"}, all(trainer(0), viewer(0)), nil)
	f("no utilisation", codes{busy: "NOT_SUPPORTED"}, all(trainer(nan), viewer(nan)), nil)
	f("utilisation fails", codes{busy: "UNKNOWN"}, all(trainer(nan), viewer(nan)), nil)

	f("nothing works", codes{compute: "UNKNOWN", graphics: "UNKNOWN", mps: "UNKNOWN"}, unlisted, error(nvml.ERROR_UNKNOWN))
	f("lost", codes{compute: "GPU_IS_LOST"}, unlisted, collector.ErrDeviceLost)
	f("lost while asked", codes{busy: "GPU_IS_LOST"}, unlisted, collector.ErrDeviceLost)
	f("another driver", codes{compute: "LIB_RM_VERSION_MISMATCH"}, unlisted, collector.ErrOutdated)
}

// TestProcessesOfADriver checks that a missing function costs only its own results.
func TestProcessesOfADriver(t *testing.T) {
	of := func(busy float64) listed {
		return all(collector.Process{PID: 41, Memory: 1 << 33, Busy: busy, Flags: collector.ProcessCompute},
			collector.Process{PID: 42, Memory: 1 << 32, Busy: busy / 5, Flags: collector.ProcessCompute},
			collector.Process{PID: 43, Memory: nan, Busy: busy * 0, Flags: collector.ProcessCompute})
	}
	f := func(name string, c nvmltest.Config, want listed) {
		t.Run(name, func(t *testing.T) {
			if nvmltest.OwnProcess(t) {
				return
			}
			c.GPUs = 1
			n := nvmltest.New(t, c)
			n.Freeze(50)
			n.SetProcesses(0, nvmltest.Process{PID: 41, Memory: 1 << 33, SM: "25"}, nvmltest.Process{PID: 42, Memory: 1 << 32, SM: "5"}, nvmltest.Process{PID: 43, NoMemory: true})
			s := openProcesses(t, n)[0]
			s.sample(t)
			n.Advance(time.Second)
			s.sample(t)
			s.want(t, name, 0, want)
		})
	}
	f("470", nvmltest.Config{Driver: "470"}, of(nan))
	f("535 with longer entries", nvmltest.Config{Driver: "535.54.03"}, of(nan))
	lists := []string{
		"nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2", "nvmlDeviceGetMPSComputeRunningProcesses_v3",
		"nvmlDeviceGetMPSComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2",
	}
	f("nothing but compute", nvmltest.Config{Driver: "580", Without: lists[:5]}, of(25))
	f("no list", nvmltest.Config{Driver: "580", Without: lists}, unlisted)
}

// TestProcessCalls counts a tick's calls with many processes.
func TestProcessCalls(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1})
	var list []nvmltest.Process
	for i := range 150 {
		list = append(list, nvmltest.Process{PID: 1 + i, Memory: uint64(i), SM: "1"})
	}
	n.SetProcesses(0, list...)
	s := openProcesses(t, n)[0]
	for range 100 {
		s.sample(t)
	}
	got := testing.AllocsPerRun(20, func() { s.sample(t) })
	testkit.ErrorIf(t, got > 20, "%v allocations a sample", got)
	calls := s.Source.(collector.CallMeter).Calls()
	for _, c := range calls {
		testkit.ErrorIf(t, c.Call == "nvmlDeviceGetComputeRunningProcesses_v3" && c.Count < 100, "%s: %d calls", c.Call, c.Count)
	}
	testkit.ErrorIf(t, len(calls) != 5, "%d kinds of calls: %v", len(calls), calls) // the instances' call is one of them
}
