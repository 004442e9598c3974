//go:build linux && cgo

package rocm

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"warpgauge/collectors/rocm/internal/sysfs"
	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/collectors/rocm/rocmtest/smitest"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
)

func functions(calls []smitest.Call, of ...string) []string {
	var names []string
	for _, c := range calls {
		if slices.Contains(of, c.Function) {
			names = append(names, c.Function)
		}
	}
	return names
}

// TestSMIStartSequence checks that libraries with locks in /dev/shm are started, stopped
// and started again on one thread, and newer ones get the flag for locks within the process.
func TestSMIStartSequence(t *testing.T) {
	tree := radeons(t, 2)
	f := func(abi smitest.ABI, want []string, flags uint64) {
		t.Helper()
		fake := fakeFor(t, tree, abi)
		mustStart(t, tree, fake.Path)
		calls := fake.Calls(t)
		testkit.Equal(t, fmt.Sprintf("ABI %d", abi), want, functions(calls, "rsmi_init", "rsmi_shut_down"))
		for _, c := range calls {
			testkit.Equal(t, fmt.Sprintf("ABI %d: thread of %s", abi, c.Function), calls[0].Thread, c.Thread)
			testkit.ErrorIf(t, c.Function == "rsmi_init" && c.Device != flags, "ABI %d: flags %#x, want %#x", abi, c.Device, flags)
		}
	}
	f(smitest.ROCm5, []string{"rsmi_init", "rsmi_shut_down", "rsmi_init"}, 0)
	f(smitest.ROCm6, []string{"rsmi_init"}, 0x400000000000000)
	f(smitest.ROCm7, []string{"rsmi_init"}, 0x400000000000000)
}

// TestSMIStaleLocks checks that calls do not wait for the locks of a killed process, which
// the thread of the first rsmi_init acquires.
func TestSMIStaleLocks(t *testing.T) {
	tree := radeons(t, 2)
	for _, abi := range []smitest.ABI{smitest.ROCm5, smitest.ROCm7} {
		fake := fakeFor(t, tree, abi)
		fake.Set(t, "stale", "ok 1")
		fake.Set(t, "rsmi_dev_temp_metric_get", "ok 42000")
		s := mustStart(t, tree, fake.Path)
		onThreads(t, 8, func() {
			for _, g := range boards(t, tree) {
				v, err := readAll(s.reader(t, g, sysfs.Reading{Kind: sysfs.Temperature}))
				testkit.ErrorIf(t, err != nil || v[0] != 42, "Read = %v, %v", v, err)
			}
		})
	}
}

// TestSMIInitFails checks that no function is called after a failed rsmi_init, because it
// would crash, and that the next session tries again.
func TestSMIInitFails(t *testing.T) {
	tree := radeons(t, 1)
	fake := fakeFor(t, tree, smitest.ROCm5)
	fake.Set(t, "rsmi_init", "status 8")
	_, err := startSMI(fake.Path)
	if err == nil || !strings.Contains(err.Error(), "RSMI_STATUS_INIT_ERROR [code 8]: it finds no GPU with the amdgpu driver, or cannot write to /dev/shm") {
		t.Errorf("startSMI = %v", err)
	}
	testkit.Equal(t, "calls", 1, len(fake.Calls(t)))
	fake.Unset(t, "rsmi_init")
	fake.Set(t, "rsmi_num_monitor_devices", "status 6")
	if _, err = startSMI(fake.Path); !errors.Is(err, smiStatus(6)) {
		t.Errorf("startSMI = %v, want status 6", err)
	}
	fake.Unset(t, "rsmi_num_monitor_devices")
	mustStart(t, tree, fake.Path)
	up := 0
	got := functions(fake.Calls(t), "rsmi_init", "rsmi_shut_down")
	for i, f := range got[1:] { // the first failed
		if f == "rsmi_init" {
			up++
		} else {
			up--
		}
		testkit.FatalIf(t, up < 0 || up > 1, "call %d: %d references; %q", i+1, up, got)
	}
	testkit.Equal(t, fmt.Sprintf("references in the end of %q", got), 1, up)
}

// TestSMIGenerations checks that each release's functions give the same readings.
func TestSMIGenerations(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI250X})
	for _, g := range tree.GPUs {
		g.Set(t, "hwmon/fan1_input", "1\n")
		g.Set(t, "hwmon/pwm1", "1\n")
	}
	says := map[string]string{
		"rsmi_dev_memory_busy_percent_get": "ok 18",
		"rsmi_dev_temp_metric_get.1.0":     "ok -5500",
		"rsmi_dev_temp_metric_get.1.1":     "ok 41250",
		"rsmi_dev_temp_metric_get.1.1281":  "ok 100000",
		"rsmi_dev_temp_metric_get.1.1793":  "ok 105000",
		"rsmi_dev_power_ave_get.1.0":       "ok 120500000",
		"rsmi_dev_power_cap_get":           "ok 560000000",
		"rsmi_dev_power_cap_range_get":     "ok 561000000 0",
		"rsmi_dev_memory_total_get.1.0":    "ok 68702699520",
		"rsmi_dev_memory_total_get.1.1":    "ok 0",
		"rsmi_dev_pci_replay_counter_get":  "ok 18446744073709551614",
		"rsmi_dev_fan_rpms_get.1.0":        "ok 1200",
		"rsmi_dev_fan_speed_get.1.0":       "ok 51",
		"rsmi_dev_volt_metric_get.1.0":     "ok 806",
	}
	none := math.NaN()
	for abi, name := range map[smitest.ABI]string{smitest.ROCm5: "5", smitest.ROCm6: "6", smitest.ROCm7: "7"} {
		t.Run("ROCm"+name, func(t *testing.T) {
			fake := fakeFor(t, tree, abi)
			for k, v := range says {
				fake.Set(t, k, v)
			}
			s := mustStart(t, tree, fake.Path)
			f := func(k sysfs.Kind, index uint8, want float64) {
				t.Helper()
				r := s.reader(t, boards(t, tree)[1], sysfs.Reading{Kind: k, Index: index})
				testkit.ErrorIf(t, !r.asked()[0], "the library is not asked for kind %d index %d", k, index)
				v := mustRead(t, r)
				testkit.ErrorIf(t, math.Abs(v[0]-want) > 1e-12*math.Abs(want) || math.IsNaN(v[0]) != math.IsNaN(want), "kind %d index %d: %v, want %v", k, index, v[0], want)
			}
			f(sysfs.MemoryBusy, 0, 18)
			f(sysfs.Temperature, sysfs.SensorEdge, -5.5)
			f(sysfs.Temperature, sysfs.SensorJunction, 41.25)
			f(sysfs.Temperature, sysfs.SensorMemory, none) // not supported
			f(sysfs.TemperatureCrit, sysfs.SensorJunction, 100)
			f(sysfs.TemperatureStop, sysfs.SensorJunction, 105)
			f(sysfs.PowerAverage, 0, 120.5)
			f(sysfs.PowerCap, 0, 560)
			f(sysfs.PowerCapMax, 0, 561)
			f(sysfs.PowerCapMin, 0, 0)
			f(sysfs.MemoryTotal, sysfs.MemoryVRAM, 68702699520)
			f(sysfs.MemoryTotal, sysfs.MemoryVisible, none) // a board without memory does not exist
			f(sysfs.Replays, 0, 18446744073709551614)
			f(sysfs.FanRPM, 0, 1200)
			f(sysfs.FanDuty, 0, 0.2)
			f(sysfs.Voltage, 0, 0.806)
		})
	}
}

// TestSMIStatuses checks that a call that fails, or succeeds without writing its output,
// gives a blank, never 0 and never another call's value.
func TestSMIStatuses(t *testing.T) {
	tree := radeons(t, 1)
	fake := fakeFor(t, tree, smitest.ROCm7)
	s := mustStart(t, tree, fake.Path)
	all := everything()
	r := s.reader(t, boards(t, tree)[0], all...)
	asked := r.asked()
	actions := []string{"keep", "status 4294967295"}
	for s := 1; s <= 19; s++ {
		actions = append(actions, fmt.Sprintf("status %d", s))
	}
	for _, action := range actions {
		for _, f := range smiFunctions {
			if strings.HasPrefix(f.Name, "rsmi_dev_") && f.Name != "rsmi_dev_pci_id_get" {
				fake.Set(t, f.Name, action)
			}
		}
		for i, v := range mustRead(t, r) {
			testkit.ErrorIf(t, asked[i] && !math.IsNaN(v), "%s: reading %+v is %v, want none", action, all[i], v)
		}
	}
}

// TestSMIMissingSymbols checks that the readings of a missing function come from /sys, and
// that the error names a missing required function.
func TestSMIMissingSymbols(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.RX7900, GPUs: 1})
	all := everything()
	asked := func(t *testing.T, fake *smitest.Fake) []bool {
		t.Helper()
		r := mustStart(t, tree, fake.Path).reader(t, boards(t, tree)[0], all...)
		mustRead(t, r)
		return r.asked()
	}
	complete := asked(t, fakeFor(t, tree, smitest.ROCm7))
	testkit.FatalIf(t, !slices.Contains(complete, true), "no reading uses a complete library")
	for f, d := range smiFunctions {
		t.Run(d.Name, func(t *testing.T) {
			fake := fakeFor(t, tree, smitest.ROCm7, d.Name)
			if d.Required {
				_, err := startSMI(fake.Path)
				if !errors.Is(err, collector.ErrNotLoaded) || !strings.Contains(err.Error(), d.Name) {
					t.Errorf("startSMI = %v, want ErrNotLoaded that names %s", err, d.Name)
				}
				testkit.Equal(t, fmt.Sprintf("called %v", fake.Calls(t)), 0, len(fake.Calls(t)))
				return
			}
			for i, got := range asked(t, fake) {
				q, _ := smiAskFor(all[i])
				testkit.Equal(t, fmt.Sprintf("without %s: asked for %+v", d.Name, all[i]), complete[i] && q.function != f, got)
			}
		})
	}
}

// TestSMICalls checks that only due and wanted readings cost calls, and that all calls are counted.
func TestSMICalls(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI300X})
	fake := fakeFor(t, tree, smitest.ROCm7)
	s := mustStart(t, tree, fake.Path)
	wanted := []sysfs.Reading{
		{Kind: sysfs.Temperature, Index: sysfs.SensorJunction}, {Kind: sysfs.PowerCapMin}, {Kind: sysfs.Busy}, {Kind: sysfs.MemoryUsed},
		{Kind: sysfs.Correctable}, {Kind: sysfs.BadPages}, {Kind: sysfs.Clock}, {Kind: sysfs.PowerInput},
	}
	r := s.reader(t, boards(t, tree)[0], wanted...)
	mustRead(t, r)
	due := make([]bool, len(wanted))
	due[0] = true
	must(t, r.Read(make([]float64, len(wanted)), due))
	got := map[string]uint64{}
	for _, c := range r.Calls() {
		got[c.Call] = c.Count
		testkit.ErrorIf(t, c.Time == 0, "%s took no time", c.Call)
	}
	testkit.ErrorIf(t, len(got) != 2 || got["rsmi_dev_temp_metric_get"] != 2 || got["rsmi_dev_power_cap_range_get"] != 1, "counted %v", got)
	for _, c := range fake.Calls(t) {
		_, counted := got[c.Function]
		testkit.ErrorIf(t, strings.HasPrefix(c.Function, "rsmi_dev_") && c.Function != "rsmi_dev_pci_id_get" && !counted, "%s was called", c.Function)
	}
}

// TestSMIIndices checks that devices are found by PCI address in any order of the library,
// and that invalid indexes are never used: the fake would end the process.
func TestSMIIndices(t *testing.T) {
	tree := radeons(t, 3)
	fake := fakeFor(t, tree, smitest.ROCm6)
	ids := []string{"0x4900", "0x4100", "0x5100"} // GPU 1, 0, 2
	wanted := []sysfs.Reading{{Kind: sysfs.Temperature}}
	f := func(what string, want []string, devices int, id ...string) {
		t.Helper()
		for i, v := range id {
			fake.Set(t, fmt.Sprintf("rsmi_dev_pci_id_get.%d", i), v)
			fake.Set(t, fmt.Sprintf("rsmi_dev_temp_metric_get.%d", i), fmt.Sprintf("ok %d000", i+1))
		}
		fake.Set(t, "devices", fmt.Sprintf("ok %d", devices))
		s := testkit.Get(startSMI(fake.Path))(t)
		for i, g := range boards(t, tree) {
			got := "none"
			if r, ok := s.open(files(t, tree, g, wanted...), &g, wanted); ok {
				got = fmt.Sprint(mustRead(t, r)[0])
			}
			testkit.Equal(t, fmt.Sprintf("%s: GPU %d", what, i), want[i], got)
		}
		must(t, s.close())
	}
	f("another order", []string{"2", "1", "3"}, 3, "ok "+ids[0], "ok "+ids[1], "ok "+ids[2])
	f("fewer", []string{"2", "1", "none"}, 2, "ok "+ids[0], "ok "+ids[1])
	f("no address", []string{"2", "none", "3"}, 3, "status 8", "ok "+ids[1], "ok "+ids[2])
	f("twice the same", []string{"none", "1", "3"}, 3, "ok "+ids[0], "ok "+ids[0], "ok "+ids[2])
	f("partitions", []string{"none", "1", "3"}, 3, "ok "+ids[0], "ok 0x10004900", "ok "+ids[2])
	f("partition in other bits", []string{"none", "1", "3"}, 3, "ok "+ids[0], "ok 0x4901", "ok "+ids[2])
	f("another domain", []string{"none", "1", "3"}, 3, "ok "+ids[0], "ok 0x100004100", "ok "+ids[2])
}

// TestSMIWithoutSensors checks that sensor functions are not called for a GPU without sensors, because they dereference a
// null pointer.
func TestSMIWithoutSensors(t *testing.T) {
	tree := radeons(t, 1)
	tree.GPUs[0].Remove(t, "hwmon/")
	fake := fakeFor(t, tree, smitest.ROCm5)
	s := mustStart(t, tree, fake.Path)
	mustRead(t, s.reader(t, boards(t, tree)[0], everything()...))
	for _, f := range []int{smiTemperature, smiPowerAverage, smiPowerCap, smiPowerCapRange, smiFanRPM, smiFanSpeed, smiVoltage} {
		testkit.Equal(t, "calls of "+smiFunctions[f].Name, 0, fake.Count(t, smiFunctions[f].Name))
	}
}

// TestSMICallHangs checks that a hanging call stalls only the reader of its own GPU.
func TestSMICallHangs(t *testing.T) {
	tree := radeons(t, 2)
	fake := fakeFor(t, tree, smitest.ROCm7)
	fake.Set(t, "rsmi_dev_temp_metric_get", "ok 50000")
	s, gpus := mustStart(t, tree, fake.Path), boards(t, tree)
	wanted := sysfs.Reading{Kind: sysfs.Temperature}
	stuck, free := s.reader(t, gpus[0], wanted), s.reader(t, gpus[1], wanted)
	fake.Set(t, "rsmi_dev_temp_metric_get.0", "hang")
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		_, _ = readAll(stuck)
	}()
	for fake.Count(t, "rsmi_dev_temp_metric_get") == 0 {
		time.Sleep(time.Millisecond) // until the call has begun
	}
	for range 3 {
		v := mustRead(t, free)
		testkit.ErrorIf(t, v[0] != 50, "the other GPU reads %v", v)
	}
	select {
	case <-returned:
		t.Fatal("the call has not hung")
	default:
	}
	fake.Unset(t, "rsmi_dev_temp_metric_get.0")
	fake.Release(t)
	<-returned
	v := mustRead(t, stuck)
	testkit.ErrorIf(t, v[0] != 50, "the GPU that hung reads %v", v)
}

// TestSMIReadAllocatesNothing checks that Read allocates nothing in steady state, also if some calls fail.
func TestSMIReadAllocatesNothing(t *testing.T) {
	if smiUnderRace {
		t.Skip("the race detector allocates")
	}
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI250X})
	fake := fakeFor(t, tree, smitest.ROCm7)
	fake.Set(t, "rsmi_dev_memory_busy_percent_get", "ok 7")
	all := append(everything(), sysfs.Reading{Kind: sysfs.Busy})
	r := mustStart(t, tree, fake.Path).reader(t, boards(t, tree)[0], all...)
	values, due := make([]float64, len(all)), slices.Repeat([]bool{true}, len(all))
	n := testing.AllocsPerRun(50, func() {
		must(t, r.Read(values, due))
	})
	testkit.Equal(t, "allocations per Read", 0.0, n)
	at := slices.Index(all, sysfs.Reading{Kind: sysfs.MemoryBusy})
	testkit.ErrorIf(t, values[at] != 7, "memory busy = %v, want 7", values[at])
}

// onThreads runs f concurrently on n different threads.
func onThreads(t *testing.T, n int, f func()) {
	t.Helper()
	var wg, all sync.WaitGroup
	all.Add(n)
	for range n {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			all.Done()
			all.Wait()
			f()
		})
	}
	wg.Wait()
}
