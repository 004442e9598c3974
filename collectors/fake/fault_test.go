package fake

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// index is the span of a single index.
func index(i int) []Span { return []Span{{i, i}} }

// scripted opens a node with faults, in the bubble's time.
func scripted(t *testing.T, l field.List, faults ...Fault) *node {
	t.Helper()
	return openNode(t, newWorld(t, Options{Spec: &Spec{Faults: faults}}), l)
}

func sampleError(n *node, source int) error {
	_, err := sampleRow(n.sources[source])
	return err
}

// TestHang: a call ends with its fault, when the fault is healed, or with the node.
func TestHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := scripted(t, list(t, temperature), Fault{Kind: Hang, At: 10 * time.Second, GPUs: index(3)},
			Fault{Kind: Hang, At: 10 * time.Second, For: time.Minute, GPUs: index(1)}, Fault{Kind: Slow, For: time.Minute, GPUs: index(2), Delay: 25 * time.Second})
		took := func(gpu int) time.Duration {
			t.Helper()
			start := time.Now()
			if err := sampleError(n, gpu); err != nil {
				t.Fatalf("GPU %d: %v", gpu, err)
			}
			return time.Since(start)
		}
		if a, b := took(3), took(1); a+b != 0 {
			t.Fatalf("before they hang: %v, %v", a, b)
		}
		if got := took(2); got != 25*time.Second {
			t.Errorf("slow GPU took %v", got)
		}
		if got := took(1); got != 45*time.Second {
			t.Errorf("hung for %v, want the remaining 45 s", got)
		}
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
		if err := <-first; err != nil {
			t.Errorf("hanging call after the fault was healed: %v", err)
		}
		time.Sleep(24 * time.Hour)
		if got := took(0) + took(2); got != 0 {
			t.Errorf("other GPUs took %v", got)
		}
		select {
		case err := <-second:
			t.Fatalf("returned within a day: %v", err)
		default:
		}
		n.world.Release()
		for _, err := range []error{<-second, sampleError(n, 3)} {
			if !errors.Is(err, errReleased) {
				t.Errorf("after release: %v", err)
			}
		}
		if _, err := n.world.Inject(Fault{Kind: Slow, GPUs: All()}); err == nil {
			t.Error("a slow fault without delay was taken")
		}
	})
}

// TestErrors runs the faults that make Sample fail.
func TestErrors(t *testing.T) {
	for kind, want := range map[FaultKind]error{Lost: collector.ErrDeviceLost, Stalled: collector.ErrStalled, Failing: nil} {
		synctest.Test(t, func(t *testing.T) {
			l := list(t, temperature, "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT")
			n := scripted(t, l, Fault{Kind: kind, At: 20 * time.Second, For: 15 * time.Second, GPUs: index(5), Switches: index(1), Message: "the sky fell"})
			for second := range 40 {
				broken := second >= 20 && second < 35
				for source := range n.sources {
					err := sampleError(n, source)
					mine := broken && (source == 5 || source == 8+1)
					switch {
					case !mine && err != nil, mine && err == nil, mine && want != nil && !errors.Is(err, want):
						t.Fatalf("%s: source %d in second %d: got error %v", kind, source, second, err)
					case mine && want == nil && !strings.Contains(err.Error(), "the sky fell"):
						t.Fatalf("%s: error %v lacks its message", kind, err)
					}
				}
				time.Sleep(time.Second)
			}
		})
	}
}

func TestValueAndBlank(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		util, _, _ := field.ByName("DCGM_FI_DEV_GPU_UTIL")
		temp, _, _ := field.ByName(temperature)
		n := scripted(t, list(t, util.Name, temperature),
			Fault{Kind: Absurd, At: 5 * time.Second, For: 5 * time.Second, GPUs: index(1), Field: util, Value: 808e6},
			Fault{Kind: Blank, At: 7 * time.Second, For: 5 * time.Second, GPUs: index(1), Field: temp},
			Fault{Kind: Blank, At: 20 * time.Second, GPUs: index(1)},
		)
		for second := range 25 {
			v, other := n.read(1, 0), n.read(2, 0)
			if absurd := second >= 5 && second < 10; (v[203] == 808e6) != absurd {
				t.Errorf("second %d: utilisation %v", second, v[203])
			}
			if blank := second >= 7 && second < 12 || second >= 20; math.IsNaN(v[150]) != blank {
				t.Errorf("second %d: temperature %v", second, v[150])
			}
			if math.IsNaN(v[203]) != (second >= 20) {
				t.Errorf("second %d: utilisation %v", second, v[203])
			}
			if other[203] > 100 || math.IsNaN(other[150]) {
				t.Errorf("second %d: another device reads %v", second, other)
			}
			time.Sleep(time.Second)
		}
		row := []float64{42, 42}
		if err := n.sources[1].Sample(row, make([]bool, 2)); err != nil || row[0] != 42 {
			t.Errorf("a cell that is not due: got %v, error %v", row[0], err)
		}
	})
}

func TestXID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{Seed: seedWithFaulty(7), Spec: &Spec{Faults: []Fault{
			{Kind: XID, At: 5 * time.Second, GPUs: index(0), XID: 79},
			{Kind: XID, At: 5 * time.Second, GPUs: index(0), XID: 48},
			{Kind: XID, At: 2 * time.Second, GPUs: index(0), XID: 31},
		}}})
		l := list(t, "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_FI_DEV_XID_ERRORS")
		n := openNode(t, w, l)
		wantEvent := []float64{0, 0, 31, 0, 0, 79, 48, 0}
		wantLast := []float64{0, 0, 31, 31, 31, 48, 48, 48}
		for second, want := range wantEvent {
			v := n.read(0, 0)
			if got := v[field.XIDEvent]; got != want && !(want == 0 && math.IsNaN(got)) {
				t.Errorf("second %d: event %v, want %v (0 is none)", second, got, want)
			}
			if got := v[field.XIDErrors]; got != wantLast[second] {
				t.Errorf("second %d: last XID %v, want %v", second, got, wantLast[second])
			}
			if other := n.read(1, 0); !math.IsNaN(other[field.XIDEvent]) || other[field.XIDErrors] != 0 {
				t.Errorf("second %d: event %v and last XID %v on another device", second, other[field.XIDEvent], other[field.XIDErrors])
			}
			time.Sleep(time.Second)
		}
		if got := openNode(t, w, l).read(0, 0)[field.XIDEvent]; !math.IsNaN(got) {
			t.Errorf("a collector that was opened later reports the event %v of before", got)
		}
	})
}

// seedWithFaulty finds a seed whose faulty board of 8 is the given one.
func seedWithFaulty(board int) uint64 {
	for seed := uint64(0); ; seed++ {
		if (&World{seed: seed, gpus: 8}).faulty() == board {
			return seed
		}
	}
}

// TestNaturalXIDs lets the faulty board run for an hour.
func TestNaturalXIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, newWorld(t, Options{Seed: seedWithFaulty(3)}), list(t, "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_FI_DEV_XID_ERRORS"))
		for _, source := range []int{2, 3} {
			n.read(source, 0) // has the last one since the collector was opened
			events := 0
			for range 3600 / 10 {
				v := n.read(source, 0)
				if !math.IsNaN(v[field.XIDEvent]) {
					events++
					if v[field.XIDEvent] != v[field.XIDErrors] {
						t.Errorf("GPU %d: event %v, last XID %v", source, v[field.XIDEvent], v[field.XIDErrors])
					}
				}
				time.Sleep(10 * time.Second)
			}
			if faulty := source == 3; faulty && (events < 3 || events > 4) || !faulty && events > 0 {
				t.Errorf("GPU %d: %d XIDs in an hour", source, events)
			}
		}
	})
}

func TestDevicesComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{Spec: &Spec{Faults: []Fault{
			{Kind: Devices, At: 30 * time.Second, For: 30 * time.Second, Count: 4},
			{Kind: Devices, At: 90 * time.Second, Count: 10},
			{Kind: Devices, At: 110 * time.Second, Count: 0},
		}}})
		l := list(t, temperature)
		first := w.Collector().(*Collector)
		sources, err := first.Open(context.Background(), l)
		if err != nil {
			t.Fatal(err)
		}
		n := &node{t, w, sources}
		for second := range 100 {
			gone := second >= 30 && second < 60
			changed, err := first.Rescan(context.Background())
			if want := gone || second >= 90; err != nil || changed != want {
				t.Fatalf("second %d: rescan says %v, error %v; want %v", second, changed, err, want)
			}
			for i := range n.sources {
				err := sampleError(n, i)
				if want := gone && i >= 4; errors.Is(err, collector.ErrColumnsChanged) != want {
					t.Fatalf("second %d: source %d returns %v", second, i, err)
				}
			}
			time.Sleep(time.Second)
		}
		if got := len(openNode(t, w, l).sources); got != 10 {
			t.Errorf("%d sources in the end, want 10", got)
		}
		time.Sleep(10 * time.Second)
		if _, err := newWorld(t, Options{Profile: "rtx4090", Spec: &Spec{Faults: []Fault{{Kind: Devices}}}}).Collector().Open(t.Context(), l); !errors.Is(err, collector.ErrNoDevices) {
			t.Errorf("open without devices: %v", err)
		}
	})
}

// TestHealthChangesColumns: the error code of a watch is a label.
func TestHealthChangesColumns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := list(t, "DCGM_EXP_GPU_HEALTH_STATUS")
		w := newWorld(t, Options{Spec: &Spec{Faults: []Fault{
			{Kind: Health, At: 10 * time.Second, For: 10 * time.Second, GPUs: index(2), Watch: "MEM", Fail: true},
		}}})
		before := openNode(t, w, l)
		time.Sleep(10 * time.Second)
		for i := range 8 {
			if err := sampleError(before, i); errors.Is(err, collector.ErrColumnsChanged) != (i == 2) {
				t.Errorf("GPU %d: %v", i, err)
			}
		}
		during := openNode(t, w, l)
		row, err := sampleRow(during.sources[2])
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range during.sources[2].Columns() {
			watch, want, code := healthWatches()[i], 0.0, "DCGM_FR_OK"
			if watch == "MEM" {
				want, code = healthFail, "DCGM_FR_VOLATILE_DBE_DETECTED"
			}
			if row[i] != want || c.Labels[0].Value != code || c.Labels[1].Value != watch {
				t.Errorf("watch %s: %v with labels %v, want %v with %s", watch, row[i], c.Labels, want, code)
			}
		}
		time.Sleep(10 * time.Second)
		if err := sampleError(during, 2); !errors.Is(err, collector.ErrColumnsChanged) {
			t.Errorf("after the watch passes again: %v", err)
		}
		if err := sampleError(before, 2); err != nil {
			t.Errorf("columns of before the fault fit again: %v", err)
		}
	})
}

// TestFaultsDoNotAllocate: a lost device is sampled each tick, too.
func TestFaultsDoNotAllocate(t *testing.T) {
	util, _, _ := field.ByName("DCGM_FI_DEV_GPU_UTIL")
	n := scripted(t, list(t, "DCGM_FI_DEV_GPU_UTIL", "DCGM_EXP_XID_ERRORS_COUNT"),
		Fault{Kind: Lost, GPUs: index(0)}, Fault{Kind: Absurd, GPUs: index(1), Field: util, Value: -1},
		Fault{Kind: Devices, Count: 2})
	for i, want := range []error{collector.ErrDeviceLost, nil} {
		s := n.sources[i]
		row, due := make([]float64, 2), []bool{true, true}
		if allocs := testing.AllocsPerRun(100, func() {
			if err := s.Sample(row, due); !errors.Is(err, want) {
				t.Fatalf("GPU %d: %v", i, err)
			}
		}); allocs != 0 {
			t.Errorf("GPU %d: %v allocations per sample", i, allocs)
		}
	}
}

func TestMisuse(t *testing.T) {
	c := newWorld(t, Options{}).Collector()
	sources, err := c.Open(context.Background(), list(t, temperature))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Open(context.Background(), field.List{}); err == nil {
		t.Error("a second open succeeded")
	}
	if err := sources[0].Sample(nil, nil); !errors.Is(err, errShape) {
		t.Errorf("sample into a row of the wrong shape: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := sampleRow(sources[0]); !errors.Is(err, errClosed) {
		t.Errorf("sample after close: %v", err)
	}
}

// switchFile is a file that makes a fault begin and end.
func switchFile(t *testing.T) (path string, on, off func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "fault")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	return path, func() { t.Helper(); must(os.WriteFile(path, nil, 0o600)) }, func() { t.Helper(); must(os.Remove(path)) }
}

// TestWhile: faults last while their file is there; an XID happens once, for who was there before it.
func TestWhile(t *testing.T) {
	path, on, off := switchFile(t)
	w := newWorld(t, Options{Spec: &Spec{Faults: []Fault{
		{Kind: Lost, While: path, GPUs: index(2)}, {Kind: Hang, While: path, GPUs: index(1)}, {Kind: OpenFails, While: path, Message: "no driver yet"},
		{Kind: XID, At: time.Hour, GPUs: index(3), XID: 31}, {Kind: XID, While: path, GPUs: index(3), XID: 79},
	}}})
	l := list(t, temperature, "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_FI_DEV_XID_ERRORS")
	n := openNode(t, w, l)
	xids := func(n *node, event, last float64) {
		t.Helper()
		got := n.read(3, 0)
		if e := got[field.XIDEvent]; e != event && !(math.IsNaN(e) && math.IsNaN(event)) || got[field.XIDErrors] != last {
			t.Errorf("event %v and last XID %v, want %v and %v", e, got[field.XIDErrors], event, last)
		}
	}
	xids(n, math.NaN(), 0)
	for i := range 2 {
		if err := sampleError(n, 2); err != nil {
			t.Fatalf("without the file: %v", err)
		}
		on()
		if err := sampleError(n, 2); !errors.Is(err, collector.ErrDeviceLost) {
			t.Errorf("with the file: got %v, want %v", err, collector.ErrDeviceLost)
		}
		if err := sampleError(n, 0); err != nil {
			t.Errorf("another GPU: %v", err)
		}
		if _, err := w.Collector().Open(t.Context(), l); !errors.Is(err, collector.ErrNotLoaded) || !strings.Contains(err.Error(), "no driver yet") {
			t.Errorf("open with the file: got %v, want %v", err, collector.ErrNotLoaded)
		}
		if i == 0 {
			xids(n, 79, 79)
		}
		xids(n, math.NaN(), 79)
		done := make(chan error, 1)
		go func() { done <- sampleError(n, 1) }()
		select {
		case err := <-done:
			t.Fatalf("returned while the file was there: %v", err)
		case <-time.After(50 * time.Millisecond): // more proves nothing
		}
		off()
		if err := <-done; err != nil {
			t.Errorf("after the file was removed: %v", err)
		}
	}
	openNode(t, w, l)
}
