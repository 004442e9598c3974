//go:build linux && cgo

package nvmltest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/collectors/nvml/nvmltest"
)

func TestEvents(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 2})
	api := open(t, n)
	first, second := device(t, api, 0), device(t, api, 1)
	listen := func(d ...nvml.Device) nvml.EventSet {
		t.Helper()
		set, ret := api.EventSetCreate()
		must(t, ret)
		t.Cleanup(func() { set.Free() })
		for _, d := range d {
			must(t, d.RegisterEvents(nvml.EventTypeXidCriticalError, set))
		}
		return set
	}
	n.XID(0, 13) // before anyone listens
	both, one := listen(first, second), listen(second)
	next := func(set nvml.EventSet, d nvml.Device, code uint64) {
		t.Helper()
		e := ok[nvml.EventData](t, "event")(set.Wait(1000))
		if e.Device != d || e.EventType != nvml.EventTypeXidCriticalError || e.EventData != code {
			t.Errorf("event %+v, want XID %d", e, code)
		}
	}
	none := func(set nvml.EventSet, want nvml.Return) {
		t.Helper()
		if _, ret := set.Wait(0); ret != want {
			t.Errorf("Wait: %v, want %v", ret, want)
		}
	}
	none(both, nvml.ERROR_TIMEOUT)
	n.XID(0, 31)
	n.XID(1, 48)
	n.Event(1, nvmltest.EventClock, 1, 0, 0) // not registered
	next(both, first, 31)
	next(both, second, 48)
	next(one, second, 48)
	none(both, nvml.ERROR_TIMEOUT)

	got := make(chan nvml.EventData)
	go func() {
		e, _ := one.Wait(60_000)
		got <- e
	}()
	n.InstanceXID(1, 94, 3, 1)
	if e := <-got; e.EventData != 94 || e.GpuInstanceId != 3 || e.ComputeInstanceId != 1 {
		t.Errorf("event of an instance: %+v", e)
	}
	next(both, second, 94)
	n.Lose(0)
	next(both, first, 79)
	none(both, nvml.ERROR_GPU_IS_LOST)
	none(one, nvml.ERROR_TIMEOUT)
}

// Another process that uses the library sees what this one changes.
func TestOtherProcess(t *testing.T) {
	const variable = "NVMLTEST_LIBRARY"
	if path := os.Getenv(variable); path != "" {
		api := nvml.New(nvml.WithLibraryPath(path))
		must(t, api.Init())
		d := device(t, api, 0)
		for {
			if v, ret := d.GetPowerUsage(); ret != nvml.SUCCESS {
				t.Fatal(ret)
			} else if v == 777 {
				api.Shutdown()
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1})
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOtherProcess$", "-test.count=1")
	cmd.Env = append(os.Environ(), variable+"="+n.Library())
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for changed := false; ; {
		select {
		case err := <-ended:
			if err != nil || !changed {
				t.Errorf("the other process: %v, changed %t\n%s", err, changed, out.String())
			}
			same(t, "held", n.Held(), nvmltest.Held{})
			return
		case <-time.After(time.Millisecond):
		}
		if !changed && n.Calls("nvmlDeviceGetPowerUsage") > 0 {
			n.SetNumber(0, "power", 777)
			changed = true
		}
	}
}

func TestUnknownNames(t *testing.T) {
	var got error
	c := nvmltest.Config{GPUs: 1}
	nvmltest.New(t, c) // skips without a compiler
	n, err := nvmltest.Start(c, func(err error) { got = err })
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	f := func(what string, do func(), want string) {
		t.Helper()
		got = nil
		do()
		if got == nil || !strings.Contains(got.Error(), want) {
			t.Errorf("%s: %v, want %q", what, got, want)
		}
	}
	f("key", func() { n.Set(0, "powr", "1") }, `no such key`)
	f("element", func() { n.Set(0, "clock[4]", "1") }, `has 4 elements`)
	f("function", func() { n.Return(0, "nvmlDeviceGetNothing", "UNKNOWN") }, `no such function`)
	if _, err := nvmltest.Start(nvmltest.Config{Preset: "h900"}, nil); err == nil || !strings.Contains(err.Error(), "h100-sxm") {
		t.Errorf("preset: %v", err)
	}
}
