package fake

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/field"
)

var must = testkit.Must

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// index returns a span of one index.
func index(i int) Spans { return Spans{{i, i}} }

// scripted opens a node with faults, on the synctest bubble's clock.
func scripted(t *testing.T, l field.List, faults ...Fault) *node {
	t.Helper()
	return openNode(t, newWorld(t, Options{Seed: seedWithFaulty(7), Spec: &Spec{Faults: faults}}), l)
}

// seedWithFaulty finds a seed whose faulty board of 8 is the given one.
func seedWithFaulty(board int) uint64 {
	for seed := uint64(0); ; seed++ {
		if (&World{seed: seed, gpus: 8}).faulty() == board {
			return seed
		}
	}
}

func sampleError(n *node, source int) error {
	_, err := sampleRow(n.sources[source])
	return err
}

// TestFaults checks that each fault affects only its devices, and only while it lasts.
func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		util, _, _ := field.ByName("DCGM_FI_DEV_GPU_UTIL")
		temp, _, _ := field.ByName(temperature)
		energy, _, _ := field.ByName("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
		const s = time.Second
		n := scripted(t, collectortest.Gauges(t, util.Name, temperature, energy.Name, "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT"),
			Fault{Kind: Absurd, GPUs: index(2), Field: energy, Value: 7, Rise: 300e3},
			Fault{Kind: Absurd, At: 5 * s, For: 5 * s, GPUs: index(1), Field: util, Value: 808e6},
			Fault{Kind: Blank, At: 7 * s, For: 5 * s, GPUs: index(1), Field: temp},
			Fault{Kind: Blank, At: 20 * s, GPUs: index(1)},
			Fault{Kind: Lost, At: 12 * s, For: 10 * s, GPUs: index(5), Switches: index(1)},
			Fault{Kind: Stalled, At: 12 * s, For: 10 * s, GPUs: index(6)},
			Fault{Kind: Devices, At: 30 * s, For: 10 * s, Count: 4},
			Fault{Kind: Devices, At: 50 * s, Count: 10},
		)
		for second := range 55 {
			testkit.Equal(t, fmt.Sprintf("second %d: energy", second), 7+300e3*n.world.uptime(n.world.elapsed()).Seconds(), n.read(2, 0)[energy.ID])
			v := n.read(1, 0)
			absurd := second >= 5 && second < 10
			testkit.ErrorIf(t, (v[203] == 808e6) != absurd || math.IsNaN(v[203]) != (second >= 20), "second %d: utilisation %v", second, v[203])
			testkit.Equal(t, fmt.Sprintf("second %d: temperature %v", second, v[150]), second >= 7 && second < 12 || second >= 20, math.IsNaN(v[150]))
			fewer := second >= 30 && second < 40
			for source := range n.sources {
				var want error
				switch broken := second >= 12 && second < 22; {
				case broken && (source == 5 || source == 8+1):
					want = collector.ErrDeviceLost
				case broken && source == 6:
					want = collector.ErrStalled
				case fewer && source >= 4 && source < 8:
					want = collector.ErrColumnsChanged
				}
				err := sampleError(n, source)
				testkit.FatalIf(t, !errors.Is(err, want), "second %d: source %d: %v, want %v", second, source, err, want)
			}
			changed, err := n.collector.Rescan(t.Context())
			testkit.FatalIf(t, err != nil || changed != (fewer || second >= 50), "second %d: rescan says %v, error %v", second, changed, err)
			time.Sleep(s)
		}
		testkit.Equal(t, "sources in the end", 10, len(openNode(t, n.world, collectortest.Gauges(t, temperature)).sources))
		inject(t, n.world, Fault{Kind: Devices})
		_, err := n.world.Collector().Open(t.Context(), collectortest.Gauges(t, temperature))
		testkit.ErrorIf(t, !errors.Is(err, collector.ErrNoDevices), "open without devices: %v", err)
	})
}

// TestHang checks that a hanging call returns when its fault ends, when the fault is healed, and when the node is released.
func TestHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := scripted(t, collectortest.Gauges(t, temperature), Fault{Kind: Hang, At: 10 * time.Second, GPUs: index(3)},
			Fault{Kind: Hang, At: 10 * time.Second, For: time.Minute, GPUs: index(1)})
		time.Sleep(25 * time.Second)
		start := time.Now()
		err := sampleError(n, 1)
		testkit.ErrorIf(t, err != nil || time.Since(start) != 45*time.Second, "hung for %v, want the remaining 45 s: %v", time.Since(start), err)
		hung := func(gpu int) chan error {
			done := make(chan error, 1)
			go func() { done <- sampleError(n, gpu) }()
			synctest.Wait()
			return done
		}
		heal := inject(t, n.world, Fault{Kind: Hang, GPUs: index(0)})
		first, second := hung(0), hung(3)
		heal()
		heal()
		err = <-first
		testkit.ErrorIf(t, err != nil, "hanging call after the fault was healed: %v", err)
		time.Sleep(24 * time.Hour)
		select {
		case err := <-second:
			t.Fatalf("returned within a day: %v", err)
		default:
		}
		n.world.Release()
		for _, err := range []error{<-second, sampleError(n, 3)} {
			testkit.ErrorIf(t, !errors.Is(err, errReleased), "after release: %v", err)
		}
	})
}

// TestXID checks that a collector opened before an XID reports it once, and that the last XID stays. The faulty board
// also has natural XIDs.
func TestXID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := collectortest.Gauges(t, "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_FI_DEV_XID_ERRORS")
		n := scripted(t, l, Fault{Kind: XID, At: 5 * time.Second, GPUs: index(0), XID: 79}, Fault{Kind: XID, At: 5 * time.Second, GPUs: index(0), XID: 48},
			Fault{Kind: XID, At: 2 * time.Second, GPUs: index(0), XID: 31})
		wantEvent := []float64{0, 0, 31, 0, 0, 79, 48, 0}
		wantLast := []float64{0, 0, 31, 31, 31, 48, 48, 48}
		for second, want := range wantEvent {
			v := n.read(0, 0)
			got := v[field.XIDEvent]
			testkit.ErrorIf(t, got != want && !(want == 0 && math.IsNaN(got)), "second %d: event %v, want %v (0 is none)", second, got, want)
			testkit.Equal(t, fmt.Sprintf("second %d: last XID", second), wantLast[second], v[field.XIDErrors])
			time.Sleep(time.Second)
		}
		got := openNode(t, n.world, l).read(0, 0)[field.XIDEvent]
		testkit.ErrorIf(t, !math.IsNaN(got), "a collector that was opened later reports the event %v of before", got)
		for _, gpu := range []int{1, 7} {
			n.read(gpu, 0)
			events := 0
			for range 3600 / 10 {
				if !math.IsNaN(n.read(gpu, 0)[field.XIDEvent]) {
					events++
				}
				time.Sleep(10 * time.Second)
			}
			faulty := gpu == 7
			testkit.ErrorIf(t, faulty && (events < 3 || events > 4) || !faulty && events > 0, "GPU %d: %d XIDs in an hour", gpu, events)
		}
	})
}

// TestHealthChangesColumns checks that a health fault changes the columns, because a watch's error code is a label.
func TestHealthChangesColumns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := collectortest.Gauges(t, "DCGM_EXP_GPU_HEALTH_STATUS")
		before := scripted(t, l, Fault{Kind: Health, At: 10 * time.Second, For: 10 * time.Second, GPUs: index(2), Watch: "MEM", Fail: true})
		time.Sleep(10 * time.Second)
		for i := range 8 {
			testkit.Equal(t, fmt.Sprintf("GPU %d", i), i == 2, errors.Is(sampleError(before, i), collector.ErrColumnsChanged))
		}
		during := openNode(t, before.world, l)
		row := testkit.Get(sampleRow(during.sources[2]))(t)
		for i, c := range during.sources[2].Columns() {
			watch, want, code := healthWatches()[i], 0.0, "DCGM_FR_OK"
			if watch == "MEM" {
				want, code = healthFail, "DCGM_FR_VOLATILE_DBE_DETECTED"
			}
			testkit.ErrorIf(t, row[i] != want || c.Labels[0].Value != code || c.Labels[1].Value != watch, "watch %s: %v with labels %v, want %v with %s", watch, row[i], c.Labels, want, code)
		}
		time.Sleep(10 * time.Second)
		err := sampleError(during, 2)
		testkit.ErrorIf(t, !errors.Is(err, collector.ErrColumnsChanged), "after the watch passes again: %v", err)
	})
}

// switchFile returns a path for Fault.While, and functions that create and remove the file.
func switchFile(t *testing.T) (path string, on, off func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "fault")
	return path, func() { t.Helper(); must(t, os.WriteFile(path, nil, 0o600)) }, func() { t.Helper(); must(t, os.Remove(path)) }
}

// TestWhile checks that a fault lasts while its file exists, and that an XID happens once.
func TestWhile(t *testing.T) {
	path, on, off := switchFile(t)
	l := collectortest.Gauges(t, temperature, "DCGM_EXP_XID_ERRORS_COUNT")
	n := scripted(t, l, Fault{Kind: Hang, While: path, GPUs: index(1)}, Fault{Kind: OpenFails, While: path, Message: "no driver yet"},
		Fault{Kind: XID, While: path, GPUs: index(3), XID: 79})
	events := 0
	for range 2 {
		on()
		if _, err := n.world.Collector().Open(t.Context(), l); !errors.Is(err, collector.ErrNotLoaded) || !strings.Contains(err.Error(), "no driver yet") {
			t.Errorf("open with the file: got %v, want %v", err, collector.ErrNotLoaded)
		}
		if n.read(3, 0)[field.XIDEvent] == 79 {
			events++
		}
		done := make(chan error, 1)
		go func() { done <- sampleError(n, 1) }()
		select {
		case err := <-done:
			t.Fatalf("returned while the file was there: %v", err)
		case <-time.After(50 * time.Millisecond): // a longer wait proves no more
		}
		off()
		err := <-done
		testkit.ErrorIf(t, err != nil, "after the file was removed: %v", err)
	}
	testkit.Equal(t, "events", 1, events)
	openNode(t, n.world, l)
}

// cmd/warpgauge/e2e_isolation_test.go checks how these faults affect a process.

// TestOnce checks that a fault spares a child that was started after the fault began.
func TestOnce(t *testing.T) {
	start := time.Now().Add(-time.Minute)
	for _, tt := range []struct {
		fault Fault
		hit   bool
	}{
		{Fault{Kind: Crash, At: 30 * time.Second}, true},
		{Fault{Kind: Crash, At: 30 * time.Second, Once: true}, false},
		{Fault{Kind: Crash, At: 59 * time.Second, For: 500 * time.Millisecond}, false},
		{Fault{Kind: Crash, At: 59 * time.Second, For: time.Hour}, true},
		{Fault{Kind: Crash, At: 2 * time.Minute}, false},
	} {
		w := newWorld(t, Options{Spec: &Spec{Faults: []Fault{tt.fault}}, Isolated: true, Start: start})
		testkit.Equal(t, fmt.Sprintf("%+v in a child started after a minute: hit", tt.fault), tt.hit, w.process.hit((*w.faults.Load())[0], w.elapsed()))
	}
	path, on, off := switchFile(t)
	f := &fault{Fault: Fault{Once: true, While: path}, start: time.Now().Add(-time.Hour)}
	on()
	for born, hit := range map[time.Duration]bool{30 * time.Minute: true, 90 * time.Minute: false} {
		testkit.Equal(t, fmt.Sprintf("the file was made after an hour, the child started after %v: hit", born), hit, newProcess(born, 1).hit(f, 2*time.Hour))
	}
	off()
	testkit.Equal(t, "hit without the file", false, newProcess(0, 1).hit(f, 2*time.Hour))
}

// TestLeak checks the rate of the leak, and that the memory is never freed.
func TestLeak(t *testing.T) {
	now := time.Now()
	w := newWorld(t, Options{Spec: &Spec{Faults: []Fault{{Kind: Leak, At: time.Second, Rate: 8}}}, Isolated: true, Now: func() time.Time { return now }})
	n := openNode(t, w, collectortest.Gauges(t, temperature))
	for second, want := range []int{0, 0, 8, 16, 24} {
		n.read(0, 0)
		testkit.Equal(t, fmt.Sprintf("second %d: MiB leaked", second), want, len(w.process.leaked))
		now = now.Add(time.Second)
	}
}

// openProcesses opens the process collector of a world.
func openProcesses(t *testing.T, w *World) *node {
	t.Helper()
	c := w.Processes()
	sources := testkit.Get(c.Open(t.Context(), field.List{}))(t)
	t.Cleanup(func() { _ = c.Close() })
	for _, s := range sources {
		testkit.Get(collector.ProcessBlocks(len(s.Devices()), s.Columns()))(t)
	}
	return &node{t, w, nil, sources}
}

func (n *node) wantProcesses(what string, gpu, count int, list ...collector.Process) {
	n.tb.Helper()
	row, err := sampleRow(n.sources[gpu])
	testkit.ErrorIf(n.tb, err != nil, "%s: %v", what, err)
	got, total := collector.GetProcesses(nil, row)
	diff := cmp.Diff(list, got, cmpopts.EquateNaNs(), cmpopts.EquateEmpty())
	testkit.ErrorIf(n.tb, diff != "" || total != count, "%s: count %d, want %d; processes (-want +got):\n%s", what, total, count, diff)
}

func TestProcesses(t *testing.T) {
	file, on, _ := switchFile(t)
	spec := testkit.Get(ParseSpec(strings.NewReader(`
profile: dgx-a100-mig
processes:
  - {device: 0, pid: 4712, busy: 7}
  - {device: 4-5, pid: 4713, memory: 5, busy: 35.5, at: 10s, for: 10s}
  - {device: 4, pid: 4714, while: ` + file + `}
`)))(t)
	now := time.Now()
	w := newWorld(t, Options{Spec: spec, Now: func() time.Time { return now }})
	l := openProcesses(t, w)
	testkit.FatalIf(t, len(l.sources) != 8, "%d sources, want 8", len(l.sources))
	nan := math.NaN()
	l.wantProcesses("on the board", 0, 1, collector.Process{PID: 4712, Memory: nan, Busy: 7, Flags: collector.ProcessCompute})
	l.wantProcesses("not there yet", 4, 0)
	now = now.Add(10 * time.Second)
	l.wantProcesses("there", 5, 1, collector.Process{PID: 4713, Memory: 5, Busy: 35.5, Flags: collector.ProcessCompute})
	now = now.Add(10 * time.Second)
	l.wantProcesses("gone", 5, 0)
	on()
	now = now.Add(time.Hour)
	l.wantProcesses("while the file is there", 4, 1, collector.Process{PID: 4714, Memory: nan, Busy: nan, Flags: collector.ProcessCompute})

	heal := inject(t, w, Fault{Kind: Blank, GPUs: index(4)})
	l.wantProcesses("untold", 4, -1)
	heal()
	// For AMD, busy means occupancy.
	amd := newWorld(t, Options{Profile: "mi300x", Spec: &Spec{Processes: []Process{{GPUs: All(), PID: 1, Memory: 1, Busy: 1}}}})
	openProcesses(t, amd).wantProcesses("AMD", 7, 1, collector.Process{PID: 1, Memory: 1, Busy: 1, Flags: collector.ProcessCompute | collector.ProcessOccupancy})
}
