//go:build linux && cgo

package rocm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"warpgauge/collectors/rocm/internal/raw"
	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/collectors/rocm/rocmtest/smitest"
	"warpgauge/pkg/collector"
)

func radeons(t *testing.T, n int) *rocmtest.Tree {
	t.Helper()
	return rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.RX7900, GPUs: n})
}

// Each generation's layouts and functions give the same readings.
func TestSMIGenerations(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI250X})
	for _, g := range tree.GPUs {
		g.Set(t, "hwmon/power1_input", "1\n") // some boards have both
		g.Set(t, "hwmon/fan1_input", "1\n")
		g.Set(t, "hwmon/pwm1", "1\n")
	}
	says := map[string]string{
		"rsmi_dev_busy_percent_get":             "ok 17",
		"rsmi_dev_memory_busy_percent_get":      "ok 18",
		"rsmi_dev_temp_metric_get.1.0":          "ok -5500",
		"rsmi_dev_temp_metric_get.1.1":          "ok 41250",
		"rsmi_dev_temp_metric_get.1.1281":       "ok 100000",
		"rsmi_dev_temp_metric_get.1.1793":       "ok 105000",
		"rsmi_dev_power_ave_get.1.0":            "ok 120500000",
		"rsmi_dev_current_socket_power_get":     "ok 121500000",
		"rsmi_dev_power_cap_get":                "ok 560000000",
		"rsmi_dev_power_cap_range_get":          "ok 561000000 0",
		"rsmi_dev_memory_usage_get.1.0":         "ok 68702699519",
		"rsmi_dev_memory_usage_get.1.2":         "ok 0",
		"rsmi_dev_memory_total_get.1.0":         "ok 68702699520",
		"rsmi_dev_memory_total_get.1.1":         "ok 0",
		"rsmi_dev_gpu_clk_freq_get.1.0":         "ok 1 3 1700000000",
		"rsmi_dev_gpu_clk_freq_get.1.1":         "ok 31 32 1400000000",
		"rsmi_dev_gpu_clk_freq_get.1.3":         "ok 4294967295 3 0",
		"rsmi_dev_gpu_clk_freq_get.1.4":         "ok 0 99 1600000000",
		"rsmi_dev_pci_replay_counter_get":       "ok 18446744073709551614",
		"rsmi_dev_ecc_count_get.1.1":            "ok 7 3",
		"rsmi_dev_ecc_count_get.1.64":           "status 2",
		"rsmi_dev_memory_reserved_pages_get":    "ok 2 1 3",
		"rsmi_dev_fan_rpms_get.1.0":             "ok 1200",
		"rsmi_dev_fan_speed_get.1.0":            "ok 51",
		"rsmi_dev_volt_metric_get.1.0":          "ok 806",
		"rsmi_dev_gpu_metrics_info_get.unasked": "abort",
	}
	none := math.NaN()
	for abi, name := range map[smitest.ABI]string{smitest.ROCm5: "5", smitest.ROCm6: "6", smitest.ROCm7: "7"} {
		t.Run("ROCm"+name, func(t *testing.T) {
			fake := fakeFor(t, tree, smitest.Compile(t, abi, false))
			for k, v := range says {
				fake.Set(t, k, v)
			}
			r := mustOpenSMI(t, smiOptionsFor(t, tree, fake.Path))
			f := func(k raw.Kind, index uint8, want float64) {
				t.Helper()
				h := mustHandle(t, r, boards(t, tree)[1], raw.Reading{Kind: k, Index: index})
				if !h.Has()[0] {
					t.Errorf("kind %d index %d is not had", k, index)
				}
				if v := mustRead(t, h); !same(v[0], want) {
					t.Errorf("kind %d index %d: %v, want %v", k, index, v[0], want)
				}
			}
			f(raw.Busy, 0, 17)
			f(raw.MemoryBusy, 0, 18)
			f(raw.Temperature, raw.SensorEdge, -5.5)
			f(raw.Temperature, raw.SensorJunction, 41.25)
			f(raw.Temperature, raw.SensorMemory, none) // not supported
			f(raw.TemperatureCrit, raw.SensorJunction, 100)
			f(raw.TemperatureStop, raw.SensorJunction, 105)
			f(raw.PowerAverage, 0, 120.5)
			f(raw.PowerCap, 0, 560)
			f(raw.PowerCapMax, 0, 561)
			f(raw.PowerCapMin, 0, 0)
			f(raw.MemoryUsed, raw.MemoryVRAM, 68702699519)
			f(raw.MemoryUsed, raw.MemoryGTT, 0)
			f(raw.MemoryTotal, raw.MemoryVRAM, 68702699520)
			f(raw.MemoryTotal, raw.MemoryVisible, none) // a board without memory does not exist
			f(raw.Clock, raw.ClockGraphics, 1700)
			f(raw.ClockMax, raw.ClockGraphics, 1700)
			f(raw.Clock, raw.ClockFabric, 1400)
			f(raw.Clock, raw.ClockSystem, none)       // no level is current
			f(raw.ClockMax, raw.ClockSystem, 3.0/1e6) // but there are levels
			f(raw.Clock, raw.ClockMemory, none)       // more levels than there is room for
			f(raw.Replays, 0, 18446744073709551614)
			f(raw.BadPages, raw.PageRetired, 2)
			f(raw.BadPages, raw.PagePending, 1)
			f(raw.BadPages, raw.PageFailed, 3)
			f(raw.FanRPM, 0, 1200)
			f(raw.FanDuty, 0, 0.2)
			f(raw.Voltage, 0, 0.806)
			if abi == smitest.ROCm5 {
				h := mustHandle(t, r, boards(t, tree)[1], raw.Reading{Kind: raw.PowerInput}, raw.Reading{Kind: raw.Correctable})
				if has := h.Has(); has[0] || has[1] {
					t.Errorf("has = %v, want neither socket power nor RAS", has)
				}
				return
			}
			f(raw.PowerInput, 0, 121.5)
			f(raw.Correctable, raw.BlockUMC, 7)
			f(raw.Uncorrectable, raw.BlockUMC, 3)
			f(raw.Correctable, raw.BlockHDP, none)
		})
	}
}

// Whatever status a function answers, and also if it answers success and writes
// nothing, there is no value; never 0, never what was left from another call.
func TestSMIStatuses(t *testing.T) {
	tree := radeons(t, 1)
	fake := fakeFor(t, tree, smitest.Compile(t, smitest.ROCm7, false))
	r := mustOpenSMI(t, smiOptionsFor(t, tree, fake.Path))
	all := everything()
	h := mustHandle(t, r, boards(t, tree)[0], all...)
	actions := []string{"keep", "status 4294967295"}
	for s := 1; s <= 19; s++ {
		actions = append(actions, fmt.Sprintf("status %d", s))
	}
	for _, action := range actions {
		for _, name := range smiFunctions() {
			if strings.HasPrefix(name, "rsmi_dev_") && name != "rsmi_dev_pci_id_get" {
				fake.Set(t, name, action)
			}
		}
		for i, v := range mustRead(t, h) {
			if !math.IsNaN(v) {
				t.Errorf("%s: reading %+v is %v, want none", action, all[i], v)
			}
		}
	}
}

// A function that lacks costs its readings and nothing else; without one of the
// few that all depends on there is no reader, and the error names it.
func TestSMIMissingSymbols(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.RX7900, GPUs: 1})
	built := smitest.Compile(t, smitest.ROCm7, false)
	all := everything()
	has := func(t *testing.T, fake *smitest.Fake) []bool {
		t.Helper()
		r := mustOpenSMI(t, smiOptionsFor(t, tree, fake.Path))
		h := mustHandle(t, r, boards(t, tree)[0], all...)
		mustRead(t, h)
		return h.Has()
	}
	complete := has(t, fakeFor(t, tree, built))
	if !slices.Contains(complete, true) {
		t.Fatal("a complete library has nothing")
	}
	for f, name := range smiFunctions() {
		t.Run(name, func(t *testing.T) {
			fake := fakeFor(t, tree, built, name)
			if slices.Contains(smiRequired(), smiFunction(f)) {
				_, err := openSMI(t.Context(), smiOptionsFor(t, tree, fake.Path))
				if !errors.Is(err, collector.ErrNotLoaded) || !strings.Contains(err.Error(), name) {
					t.Errorf("openSMI = %v, want ErrNotLoaded that names %s", err, name)
				}
				if len(fake.Calls(t)) != 0 {
					t.Errorf("called %v", fake.Calls(t))
				}
				return
			}
			for i, got := range has(t, fake) {
				q, _ := smiReadingOf(all[i])
				want := complete[i] && q.ask.function != smiFunction(f)
				if name == "rsmi_dev_power_get" {
					want = want && q.ask.function != smiECCCount // then it is ROCm 5
				}
				if got != want {
					t.Errorf("without %s: has %+v = %v, want %v", name, all[i], got, want)
				}
			}
		})
	}
}

// Readings of one call cost one call, those that are not due none, and all are
// counted.
func TestSMICallsOnce(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI300X})
	fake := fakeFor(t, tree, smitest.Compile(t, smitest.ROCm7, false))
	fake.Set(t, "rsmi_dev_ecc_count_get", "ok 1 2")
	fake.Set(t, "rsmi_dev_memory_reserved_pages_get", "ok 0 0 0")
	r := mustOpenSMI(t, smiOptionsFor(t, tree, fake.Path))
	h := mustHandle(t, r, boards(t, tree)[0],
		raw.Reading{Kind: raw.Correctable}, raw.Reading{Kind: raw.Uncorrectable},
		raw.Reading{Kind: raw.BadPages, Index: raw.PageRetired}, raw.Reading{Kind: raw.BadPages, Index: raw.PageFailed},
		raw.Reading{Kind: raw.Temperature, Index: raw.SensorJunction},
		raw.Reading{Kind: raw.LinkSpeed}) // which ROCm SMI does not have
	values := []float64{-1, -1, -1, -1, -1, -1}
	if err := h.Read(values, []bool{true, true, false, false, false, true}); err != nil {
		t.Fatal(err)
	}
	if values[0] != 1 || values[1] != 2 || values[2] != -1 || values[3] != -1 || values[4] != -1 || !math.IsNaN(values[5]) {
		t.Errorf("values = %v, want 1 2 -1 -1 -1 NaN", values)
	}
	mustRead(t, h)
	calls := map[string]uint64{}
	for _, c := range h.(raw.Meter).Calls() {
		calls[c.Name] = c.Count
		if c.Time <= 0 {
			t.Errorf("%s took %v", c.Name, c.Time)
		}
	}
	f := func(function string, metered uint64, called int) {
		t.Helper()
		if calls[function] != metered || fake.Count(t, function) != called {
			t.Errorf("%s: %d counted, %d called, want %d and %d", function, calls[function], fake.Count(t, function), metered, called)
		}
	}
	f("rsmi_dev_ecc_count_get", 2, 2)
	f("rsmi_dev_memory_reserved_pages_get", 1, 1) // no pages: there is no list to fetch
	f("rsmi_dev_temp_metric_get", 1, 1)
	if len(calls) != 3 {
		t.Errorf("counted %v", calls)
	}
}

// Devices are found by PCI address, whatever their order in the library, and an
// index that the library does not have is never used: the fake ends the process.
func TestSMIIndices(t *testing.T) {
	tree := radeons(t, 3)
	fake := fakeFor(t, tree, smitest.Compile(t, smitest.ROCm6, false))
	ids := []string{"0x4900", "0x4100", "0x5100"} // GPU 1, 0, 2
	f := func(what string, want []string, devices int, id ...string) {
		t.Helper()
		for i, v := range id {
			fake.Set(t, fmt.Sprintf("rsmi_dev_pci_id_get.%d", i), v)
			fake.Set(t, fmt.Sprintf("rsmi_dev_temp_metric_get.%d", i), fmt.Sprintf("ok %d000", i+1))
		}
		fake.Set(t, "devices", fmt.Sprintf("ok %d", devices))
		r, err := openSMI(t.Context(), smiOptionsFor(t, tree, fake.Path))
		if err != nil {
			t.Fatal(err)
		}
		for i, g := range boards(t, tree) {
			got := "none"
			if h, err := r.Open(t.Context(), &g, []raw.Reading{{Kind: raw.Temperature}}); err == nil {
				got = fmt.Sprint(mustRead(t, h)[0])
				if err := h.Close(); err != nil {
					t.Error(err)
				}
			}
			if got != want[i] {
				t.Errorf("%s: GPU %d reads %s, want %s", what, i, got, want[i])
			}
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	f("another order", []string{"2", "1", "3"}, 3, "ok "+ids[0], "ok "+ids[1], "ok "+ids[2])
	f("fewer", []string{"2", "1", "none"}, 2, "ok "+ids[0], "ok "+ids[1])
	f("no address", []string{"2", "none", "3"}, 3, "status 8", "ok "+ids[1], "ok "+ids[2])
	f("twice the same", []string{"none", "1", "3"}, 3, "ok "+ids[0], "ok "+ids[0], "ok "+ids[2])
	f("partitions", []string{"none", "1", "3"}, 3, "ok "+ids[0], "ok 0x10004900", "ok "+ids[2])
	f("partition in other bits", []string{"none", "1", "3"}, 3, "ok "+ids[0], "ok 0x4901", "ok "+ids[2])
	f("another domain", []string{"none", "1", "3"}, 3, "ok "+ids[0], "ok 0x100004100", "ok "+ids[2])
}

// When GPUs leave and indices shift, a handle from before reads its own GPU.
func TestSMIIndicesShift(t *testing.T) {
	tree := radeons(t, 3)
	fake := fakeFor(t, tree, smitest.Compile(t, smitest.ROCm6, false))
	for i := range 3 {
		fake.Set(t, fmt.Sprintf("rsmi_dev_temp_metric_get.%d", i), fmt.Sprintf("ok %d000", i+1))
	}
	o := smiOptionsFor(t, tree, fake.Path)
	r := mustOpenSMI(t, o)
	wanted := raw.Reading{Kind: raw.Temperature}
	first, last := mustHandle(t, r, o.GPUs[0], wanted), mustHandle(t, r, o.GPUs[2], wanted)
	if v := mustRead(t, last)[0]; v != 3 {
		t.Fatalf("%v, want 3", v)
	}
	tree.GPUs[0].Vanish(t)
	fake.SetDevices(t, tree) // GPU 1 has index 0 from the next rsmi_init on, GPU 2 index 1
	if v := mustRead(t, last)[0]; v != 3 {
		t.Errorf("before the library knows: %v, want 3", v)
	}
	o.GPUs = boards(t, tree)
	mustOpenSMI(t, o)
	if v := mustRead(t, last)[0]; v != 2 {
		t.Errorf("after: %v, want 2, which is what index 1 says", v)
	}
	if _, err := readAll(first); !errors.Is(err, collector.ErrDeviceLost) {
		t.Errorf("Read of the lost one = %v, want ErrDeviceLost", err)
	}
}

// Newer libraries open /dev/kfd in search of memory, which makes the exporter a
// process on the GPU.
func TestSMINeverSearchesMemoryInKFD(t *testing.T) {
	tree := radeons(t, 2)
	tree.GPUs[1].Set(t, "mem_info_vram_total", "0\n")
	fake := fakeFor(t, tree, smitest.Compile(t, smitest.ROCm7, false))
	r := mustOpenSMI(t, smiOptionsFor(t, tree, fake.Path))
	gpus, wanted := boards(t, tree), raw.Reading{Kind: raw.MemoryUsed}
	with, without := mustHandle(t, r, gpus[0], wanted), mustHandle(t, r, gpus[1], wanted)
	if !with.Has()[0] || without.Has()[0] {
		t.Fatalf("has = %v, %v, want true, false", with.Has()[0], without.Has()[0])
	}
	for _, says := range []string{"status 2", "keep", "status 3"} {
		fake.Set(t, "rsmi_dev_memory_usage_get", says)
		if v := mustRead(t, with); !math.IsNaN(v[0]) {
			t.Errorf("%s: %v, want none", says, v[0])
		}
	}
	mustRead(t, without)
	if n := fake.Count(t, "open-dev-kfd"); n != 0 {
		t.Errorf("/dev/kfd opened %d times", n)
	}
	if n := fake.Count(t, "rsmi_dev_memory_usage_get"); n != 3 {
		t.Errorf("asked %d times, want 3", n)
	}
}

// A GPU without sensors: the functions for them follow a null pointer.
func TestSMIWithoutSensors(t *testing.T) {
	tree := radeons(t, 1)
	tree.GPUs[0].Remove(t, "hwmon/")
	fake := fakeFor(t, tree, smitest.Compile(t, smitest.ROCm5, false))
	r := mustOpenSMI(t, smiOptionsFor(t, tree, fake.Path))
	all := everything()
	h := mustHandle(t, r, boards(t, tree)[0], all...)
	mustRead(t, h)
	for _, c := range fake.Calls(t) {
		for f, name := range smiFunctions() {
			if c.Function == name && smiFunction(f).sensor() {
				t.Errorf("%s called", name)
			}
		}
	}
}

// In steady state a Read allocates nothing, also where calls fail.
func TestSMIReadAllocatesNothing(t *testing.T) {
	if smiUnderRace {
		t.Skip("the race detector allocates")
	}
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI250X})
	fake := fakeFor(t, tree, smitest.Compile(t, smitest.ROCm7, false))
	fake.Set(t, "rsmi_dev_busy_percent_get", "ok 0")
	tree.GPUs[0].Set(t, "gpu_busy_percent", "0\n")
	r := mustOpenSMI(t, smiOptionsFor(t, tree, fake.Path))
	all := everything()
	h := mustHandle(t, r, boards(t, tree)[0], all...)
	values, due := make([]float64, len(all)), make([]bool, len(all))
	for i := range due {
		due[i] = true
	}
	n := testing.AllocsPerRun(50, func() {
		if err := h.Read(values, due); err != nil {
			t.Error(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations per Read", n)
	}
	if values[0] != 0 {
		t.Errorf("busy = %v, want 0", values[0])
	}
}

// What is not there is said by name.
func TestSMINotLoaded(t *testing.T) {
	tree := radeons(t, 1)
	o := smiOptionsFor(t, tree, "/nowhere/librocm_smi64.so.9")
	_, err := openSMI(t.Context(), o)
	want := "load ROCm SMI: library or driver not found: the loader finds no /nowhere/librocm_smi64.so.9"
	if !errors.Is(err, collector.ErrNotLoaded) || err.Error() != want {
		t.Errorf("openSMI = %v, want %s", err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	fake := fakeFor(t, tree, smitest.Compile(t, smitest.ROCm5, false))
	o.Library = fake.Path
	// A context that has ended may still see the start through, never half of it.
	if r, err := openSMI(ctx, o); err == nil {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	} else if !errors.Is(err, context.Canceled) {
		t.Errorf("openSMI = %v, want context.Canceled", err)
	}
	// The start goes on without it.
	mustOpenSMI(t, o)
	if n := fake.Count(t, "rsmi_init"); n%2 != 0 {
		t.Errorf("%d rsmi_init, want two for each start", n)
	}
}
