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
		if ret != nvml.SUCCESS {
			t.Fatal(ret)
		}
		t.Cleanup(func() { set.Free() })
		for _, d := range d {
			if ret := d.RegisterEvents(nvml.EventTypeXidCriticalError, set); ret != nvml.SUCCESS {
				t.Fatal(ret)
			}
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

func TestGPM(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{Preset: "h100-mig"})
	api := open(t, n)
	n.Freeze(10)
	n.SetLoad(nvmltest.Host, nvmltest.Steady(0.2))
	sample := func() nvml.GpmSample {
		t.Helper()
		s, ret := api.GpmSampleAlloc()
		if ret != nvml.SUCCESS {
			t.Fatal(ret)
		}
		return s
	}
	a, b := sample(), sample()
	d := device(t, api, 2)
	take := func(s nvml.GpmSample) {
		t.Helper()
		if ret := d.GpmSampleGet(s); ret != nvml.SUCCESS {
			t.Fatal(ret)
		}
	}
	take(a)
	n.Advance(time.Second)
	n.SetLoad(nvmltest.Host, nvmltest.Steady(0.8))
	n.Advance(time.Second)
	take(b)
	get := func() *nvml.GpmMetricsGetType {
		t.Helper()
		g := &nvml.GpmMetricsGetType{NumMetrics: 3, Sample1: a, Sample2: b}
		for i, id := range []nvml.GpmMetricId{nvml.GPM_METRIC_GRAPHICS_UTIL, nvml.GPM_METRIC_SM_UTIL, 250} {
			g.Metrics[i].MetricId = uint32(id)
		}
		if ret := api.GpmMetricsGet(g); ret != nvml.SUCCESS {
			t.Fatal(ret)
		}
		return g
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if got < want-1e-6 || got > want+1e-6 {
			t.Errorf("%s = %v, want %v", what, got, want)
		}
	}
	g := get()
	near("graphics engine", g.Metrics[0].Value, 50) // the mean of 0.2 and 0.8
	near("SM", g.Metrics[1].Value, 47)
	if ret := nvml.Return(g.Metrics[2].NvmlReturn); ret != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("a metric that driver 580 lacks: %v", ret)
	}

	in := n.Instances(0)[3]
	if ret := device(t, api, 0).GpmSampleGet(a); ret != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("whole GPU in MIG mode: %v", ret)
	}
	for _, s := range []nvml.GpmSample{a, b} {
		if ret := device(t, api, 0).GpmMigSampleGet(in.GI, s); ret != nvml.SUCCESS {
			t.Fatal(ret)
		}
		n.Advance(time.Second)
	}
	near("graphics engine of 3 slices of 7", get().Metrics[0].Value, 100*0.8*0.4286)
	same(t, "samples", n.Held().Samples, 2)
	for _, s := range []nvml.GpmSample{a, b} {
		s.Free()
	}
	same(t, "samples after free", n.Held().Samples, 0)
}

func TestMIG(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{Preset: "a100-mig"})
	api := open(t, n)
	names := func(gpu int) (out []string) {
		t.Helper()
		d := device(t, api, gpu)
		for i := range ok[int](t, "max")(d.GetMaxMigDeviceCount()) {
			m, ret := d.GetMigDeviceHandleByIndex(i)
			if ret == nvml.ERROR_NOT_FOUND {
				break
			}
			if ret != nvml.SUCCESS {
				t.Fatal(ret)
			}
			name := ok[string](t, "name")(m.GetName())
			out = append(out, strings.TrimPrefix(name, "NVIDIA A100-SXM4-40GB MIG "))
		}
		return out
	}
	same(t, "GPU 0", names(0), []string{"1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"})
	same(t, "GPU 2", names(2), []string{"3g.20gb", "1c.3g.20gb", "1c.3g.20gb"})
	same(t, "GPU 3", names(3), nil)

	last := ok[nvml.Device](t, "instance")(device(t, api, 2).GetMigDeviceHandleByIndex(2))
	same(t, "GPU instance", ok[int](t, "GI")(last.GetGpuInstanceId()), 2)
	same(t, "compute instance", ok[int](t, "CI")(last.GetComputeInstanceId()), 1)
	a := ok[nvml.DeviceAttributes](t, "attributes")(last.GetAttributes())
	same(t, "slices", [2]uint32{a.GpuInstanceSliceCount, a.ComputeInstanceSliceCount}, [2]uint32{3, 1})
	profile := ok[nvml.GpuInstanceProfileInfo](t, "profile")(device(t, api, 2).GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_3_SLICE))
	same(t, "profile", [2]uint32{profile.Id, profile.SliceCount}, [2]uint32{9, 3})
	if _, ret := last.GetPowerUsage(); ret != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("power of an instance: %v", ret)
	}
	m := ok[nvml.Memory](t, "memory")(last.GetMemoryInfo())
	same(t, "memory of an instance", m.Total, 19968<<20)

	n.SetMIG(2, "7g.40gb")
	same(t, "GPU 2 after a change", names(2), []string{"7g.40gb"})
	if _, ret := last.GetUUID(); ret != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("an instance that is gone: %v", ret)
	}
	n.NoMIG(2)
	same(t, "GPU 2 without MIG", names(2), nil)
	mode, _, ret := device(t, api, 2).GetMigMode()
	if ret != nvml.SUCCESS || mode != nvml.DEVICE_MIG_DISABLE {
		t.Errorf("mode %d, %v", mode, ret)
	}
}

func TestP2P(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 3})
	api := open(t, n)
	n.P2P(0, 2, int(nvml.P2P_CAPS_INDEX_NVLINK), int(nvml.P2P_STATUS_DISABLED_BY_REGKEY))
	for other, want := range map[int]nvml.GpuP2PStatus{1: nvml.P2P_STATUS_OK, 2: nvml.P2P_STATUS_DISABLED_BY_REGKEY} {
		got, ret := device(t, api, 0).GetP2PStatus(device(t, api, other), nvml.P2P_CAPS_INDEX_NVLINK)
		if ret != nvml.SUCCESS || got != want {
			t.Errorf("to %d: %v, %v, want %v", other, got, ret, want)
		}
	}
}

func TestOlderDriver(t *testing.T) {
	if nvmltest.OwnProcess(t) {
		return
	}
	n := nvmltest.New(t, nvmltest.Config{Driver: "470", GPUs: 1, Without: []string{"nvmlDeviceGetSerial"}})
	api := open(t, n)
	for symbol, there := range map[string]bool{
		"nvmlDeviceGetMemoryInfo":    true,
		"nvmlDeviceGetMemoryInfo_v2": false,
		"nvmlGpmSampleGet":           false,
		"nvmlDeviceGetSerial":        false,
		"nvmlDeviceGetFieldValues":   true,
	} {
		if err := api.Extensions().LookupSymbol(symbol); (err == nil) != there {
			t.Errorf("%s: %v", symbol, err)
		}
	}
	values := []nvml.FieldValue{{FieldId: nvml.FI_DEV_POWER_INSTANT}}
	if ret := device(t, api, 0).GetFieldValues(values); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	if ret := nvml.Return(values[0].NvmlReturn); ret != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("a field that driver 470 lacks: %v", ret)
	}
	if _, err := nvmltest.Start(nvmltest.Config{Driver: "580"}, nil); err == nil {
		t.Error("a second library in one process")
	}
}

// Another process that uses the library sees what this one changes.
func TestOtherProcess(t *testing.T) {
	const variable = "NVMLTEST_LIBRARY"
	if path := os.Getenv(variable); path != "" {
		api := nvml.New(nvml.WithLibraryPath(path))
		if ret := api.Init(); ret != nvml.SUCCESS {
			t.Fatal(ret)
		}
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

func TestInstalledCopy(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1})
	path := n.Install(t.TempDir() + "/usr/lib64/libnvidia-ml.so.1")
	st, err := os.Stat(path)
	if err != nil || st.Size() == 0 {
		t.Errorf("%v, %v", st, err)
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
