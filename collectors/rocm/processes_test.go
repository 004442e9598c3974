package rocm

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// lookout samples the processes of a tree.
type lookout struct {
	tree    *rocmtest.Tree
	sources []collector.Source
	rows    [][]float64
	starts  [][]int // of the blocks of each source's devices
}

func openProcesses(t *testing.T, o rocmtest.Options) *lookout {
	t.Helper()
	out := &lookout{tree: rocmtest.NewTree(t, o)}
	c := NewProcesses(Options{Root: out.tree.Root, Source: SourceSMI, Library: "/nonexistent"})
	sources := testkit.Get(c.Open(t.Context(), field.List{}))(t)
	t.Cleanup(func() {
		must(t, errors.Join(c.Close(), c.Close()))
	})
	for _, s := range sources {
		starts := testkit.Get(collector.ProcessBlocks(len(s.Devices()), s.Columns()))(t)
		row := slices.Repeat([]float64{math.NaN()}, len(s.Columns()))
		out.sources, out.rows, out.starts = append(out.sources, s), append(out.rows, row), append(out.starts, starts)
	}
	return out
}

func (l *lookout) sample(gpu int) error {
	due := slices.Repeat([]bool{true}, len(l.rows[gpu]))
	return l.sources[gpu].Sample(l.rows[gpu], due)
}

func (l *lookout) want(t *testing.T, what string, gpu, device, count int, list ...collector.Process) {
	t.Helper()
	err := l.sample(gpu)
	testkit.ErrorIf(t, err != nil, "%s: %v", what, err)
	got, n := collector.GetProcesses(nil, l.rows[gpu][l.starts[gpu][device]:][:collector.ProcessWidth])
	byPID := cmpopts.SortSlices(func(a, b collector.Process) bool { return a.PID < b.PID })
	diff := cmp.Diff(list, got, cmpopts.EquateNaNs(), cmpopts.EquateEmpty(), cmpopts.EquateApprox(0, 1e-9), byPID)
	testkit.ErrorIf(t, diff != "" || n != count, "%s: count %d, want %d; processes (-want +got):\n%s", what, n, count, diff)
}

func computes(pid int, memory, busy float64) collector.Process {
	return collector.Process{PID: pid, Memory: memory, Busy: busy, Flags: collector.ProcessCompute | collector.ProcessOccupancy}
}

func TestProcesses(t *testing.T) {
	l := openProcesses(t, rocmtest.Options{Model: rocmtest.MI300X})
	units := float64(304) // compute units of an MI300X
	l.want(t, "no process", 0, 0, 0)
	l.tree.Start(t, rocmtest.Process{PID: 100, Uses: []rocmtest.Use{{GPU: 0, VRAM: 5 << 30, CUs: 152}, {GPU: 1, VRAM: 1 << 20}}})
	l.tree.Start(t, rocmtest.Process{PID: 101, Uses: []rocmtest.Use{{GPU: 1, VRAM: 7, CUs: 400}}})
	l.tree.Start(t, rocmtest.Process{PID: 102}) // opens KFD, but uses no GPU
	l.want(t, "one", 0, 0, 1, computes(100, 5<<30, 50))
	l.want(t, "two, one of them idle, one rounded up", 1, 0, 2, computes(100, 1<<20, 0), computes(101, 7, 100))
	l.tree.End(t, 100)
	l.want(t, "ended", 0, 0, 0)

	l.tree.Start(t, rocmtest.Process{
		PID: 103, Uses: []rocmtest.Use{{GPU: 0, VRAM: 10, CUs: 1}},
		Contexts: [][]rocmtest.Use{{{GPU: 0, VRAM: 20, CUs: 2}}, {{GPU: 1, VRAM: 40}}},
	})
	l.want(t, "all contexts of a program", 0, 0, 1, computes(103, 30, 3/units*100))
	l.want(t, "all contexts of a program", 1, 0, 2, computes(101, 7, 100), computes(103, 40, 0))
}

// TestProcessesOfPartitions checks that each partition lists its processes and the board lists none.
func TestProcessesOfPartitions(t *testing.T) {
	l := openProcesses(t, rocmtest.Options{Model: rocmtest.MI300X, Partition: "CPX", GPUs: 1})
	s := l.sources[0]
	if len(s.Devices()) != 9 || l.starts[0][0] != -1 {
		t.Fatalf("%d devices, block of the board at %d", len(s.Devices()), l.starts[0][0])
	}
	l.tree.Start(t, rocmtest.Process{PID: 5, Uses: []rocmtest.Use{{Instance: 3, VRAM: 9, CUs: 19}, {Instance: 7, VRAM: 1}}})
	l.want(t, "another", 0, 1, 0)
	l.want(t, "the fourth", 0, 4, 1, computes(5, 9, 50))
	l.want(t, "the last", 0, 8, 1, computes(5, 1, 0))

	other := New(Options{Root: l.tree.Root, Source: SourceSysfs})
	list, _, err := field.Parse(strings.NewReader("DCGM_FI_DEV_FB_USED, gauge, m\n"), field.ParseOptions{})
	must(t, err)
	sources := testkit.Get(other.Open(t.Context(), list))(t)
	defer other.Close()
	same := map[string]bool{}
	for _, d := range sources[0].Devices() {
		same[d.ID] = true
	}
	for _, d := range s.Devices() {
		testkit.ErrorIf(t, !same[d.ID], "the other collector has no device %q", d.ID)
	}
}

// TestProcessesThatAreNotKnown checks that data that KFD does not show is blank, never an empty list and never 0.
func TestProcessesThatAreNotKnown(t *testing.T) {
	l := openProcesses(t, rocmtest.Options{Model: rocmtest.MI300X})
	l.tree.Start(t, rocmtest.Process{PID: 8, Uses: []rocmtest.Use{{GPU: 0, VRAM: 5, CUs: 304}, {GPU: 1, VRAM: 6, CUs: 304}}})
	remove := func(name string) {
		t.Helper()
		must(t, os.RemoveAll(l.tree.ProcessFile(8, 0, name)))
	}
	remove("cu_occupancy")
	l.want(t, "boards that do not count waves", 0, 0, 1, computes(8, 5, math.NaN()))
	remove("vram")
	testkit.Must(t, os.Mkdir(l.tree.ProcessFile(8, 0, "vram"), 0o750)) // a directory cannot be read
	l.want(t, "memory cannot be read", 0, 0, 1, computes(8, math.NaN(), math.NaN()))
	l.want(t, "the other GPU", 1, 0, 1, computes(8, 6, 100))
	remove("vram")
	l.want(t, "a process that does not use the GPU", 0, 0, 0)

	l.tree.GPUs[1].Set(t, "power/runtime_status", "suspended\n")
	l.want(t, "a board that sleeps is not woken", 1, 0, 1, computes(8, 6, math.NaN()))
	l.tree.GPUs[1].Reset(t, "power/runtime_status")

	l.tree.GPUs[1].Vanish(t)
	before := append([]float64(nil), l.rows[1]...)
	err := l.sample(1)
	testkit.ErrorIf(t, !errors.Is(err, collector.ErrDeviceLost) || !cmp.Equal(before, l.rows[1], cmpopts.EquateNaNs()), "off the bus: %v, or the row has changed", err)
	l.tree.GPUs[1].Return(t)
	l.want(t, "back", 1, 0, 1, computes(8, 6, 100))

	proc := l.tree.Path("class/kfd/kfd/proc")
	must(t, os.RemoveAll(proc))
	l.want(t, "no KFD", 0, 0, -1)
	must(t, os.Mkdir(proc, 0o750))
	for pid := range 1025 {
		must(t, os.Mkdir(filepath.Join(proc, strconv.Itoa(pid+1)), 0o750))
	}
	l.want(t, "too many", 0, 0, -1)
}

func TestNoComputeSide(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{NoKFD: true})
	c := NewProcesses(Options{Root: tree.Root})
	testkit.Equal(t, "name", "rocm-processes", c.Name())
	_, err := c.Open(t.Context(), field.List{})
	testkit.ErrorIf(t, !errors.Is(err, collector.ErrNothingToRead), "without KFD: %v", err)
	_, err = NewProcesses(Options{Root: t.TempDir()}).Open(t.Context(), field.List{})
	testkit.ErrorIf(t, !errors.Is(err, collector.ErrNotLoaded), "without a driver: %v", err)
}
