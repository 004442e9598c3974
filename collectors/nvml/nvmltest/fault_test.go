//go:build linux && cgo

package nvmltest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/collectors/nvml/nvmltest"
)

func TestReturnCodes(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 2})
	api := open(t, n)
	d := device(t, api, 0)
	for code, name := range map[nvml.Return]string{
		nvml.ERROR_NOT_SUPPORTED: "NOT_SUPPORTED", nvml.ERROR_NO_PERMISSION: "NO_PERMISSION", nvml.ERROR_GPU_IS_LOST: "GPU_IS_LOST",
		nvml.ERROR_UNKNOWN: "UNKNOWN", nvml.ERROR_TIMEOUT: "TIMEOUT", nvml.ERROR_RESET_REQUIRED: "RESET_REQUIRED", nvml.Return(77): "77",
	} {
		n.Return(0, "nvmlDeviceGetPowerUsage", name)
		if _, ret := d.GetPowerUsage(); ret != code {
			t.Errorf("%s: got %v", name, ret)
		}
		if _, ret := d.GetTemperature(nvml.TEMPERATURE_GPU); ret != nvml.SUCCESS {
			t.Errorf("%s: another function: %v", name, ret)
		}
		if _, ret := device(t, api, 1).GetPowerUsage(); ret != nvml.SUCCESS {
			t.Errorf("%s: another GPU: %v", name, ret)
		}
	}
	n.Return(0, "nvmlDeviceGetPowerUsage", "SUCCESS")
	if _, ret := d.GetPowerUsage(); ret != nvml.SUCCESS {
		t.Errorf("taken back: %v", ret)
	}
	n.Return(nvmltest.Host, "nvmlSystemGetDriverVersion", "UNKNOWN")
	if _, ret := api.SystemGetDriverVersion(); ret != nvml.ERROR_UNKNOWN {
		t.Errorf("host function: %v", ret)
	}
}

func TestHangHoldsOneGPU(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 2})
	api := open(t, n)
	hung, other := device(t, api, 0), device(t, api, 1)
	release := n.Hang(0, nvmltest.Every)
	got := make(chan nvml.Return)
	go func() {
		_, ret := hung.GetPowerUsage()
		got <- ret
	}()
	n.WaitHanging(1)
	if _, ret := other.GetPowerUsage(); ret != nvml.SUCCESS {
		t.Errorf("the other GPU: %v", ret)
	}
	n.SetNumber(0, "power", 5) // a change elsewhere does not end it
	n.WaitHanging(1)
	release()
	if ret := <-got; ret != nvml.SUCCESS {
		t.Errorf("after release: %v", ret)
	}
	if h := n.Hanging(); h != 0 {
		t.Errorf("%d calls hang", h)
	}
	release()
}

func TestDelay(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1})
	d := device(t, open(t, n), 0)
	n.Delay(0, "nvmlDeviceGetPcieThroughput", 20*time.Millisecond)
	start := time.Now()
	if _, ret := d.GetPcieThroughput(nvml.PCIE_UTIL_TX_BYTES); ret != nvml.SUCCESS {
		t.Error(ret)
	}
	if took := time.Since(start); took < 20*time.Millisecond {
		t.Errorf("took %v", took)
	}
}

func TestLostAndBack(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 3})
	api := open(t, n)
	d := device(t, api, 1)
	n.Lose(1)
	if _, ret := d.GetPowerUsage(); ret != nvml.ERROR_GPU_IS_LOST {
		t.Errorf("lost: %v", ret)
	}
	if _, ret := api.DeviceGetHandleByIndex(1); ret != nvml.ERROR_GPU_IS_LOST {
		t.Errorf("handle of the lost one: %v", ret)
	}
	same(t, "count with a lost GPU", ok[int](t, "count")(api.DeviceGetCount()), 3)
	n.Restore(1)
	if _, ret := d.GetPowerUsage(); ret != nvml.SUCCESS {
		t.Errorf("restored: %v", ret)
	}
	n.Remove(1)
	same(t, "count after removal", ok[int](t, "count")(api.DeviceGetCount()), 2)
	same(t, "who moved up", ok[string](t, "UUID")(device(t, api, 1).GetUUID()), nvmltest.UUID(2))
	n.Restore(1)
	same(t, "count after return", ok[int](t, "count")(api.DeviceGetCount()), 3)
}

func TestLife(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 2})
	same(t, "devices before", n.OpenFiles(0), nil)
	api := open(t, n)
	d := device(t, api, 0)
	if ret := api.Init(); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	same(t, "devices while initialised", n.OpenFiles(0), []string{"nvidia0", "nvidia1", "nvidiactl"})
	same(t, "held", n.Held(), nvmltest.Held{Inits: 2, Files: 3})
	if ret := api.Shutdown(); ret != nvml.SUCCESS {
		t.Error(ret)
	}
	if _, ret := d.GetPowerUsage(); ret != nvml.SUCCESS {
		t.Errorf("after the first of two shutdowns: %v", ret)
	}
	if ret := api.Shutdown(); ret != nvml.SUCCESS {
		t.Error(ret)
	}
	same(t, "devices after", n.OpenFiles(0), nil)
	same(t, "held after", n.Held(), nvmltest.Held{})
	if _, ret := d.GetPowerUsage(); ret != nvml.ERROR_UNINITIALIZED {
		t.Errorf("after shutdown: %v", ret)
	}
	if ret := api.Shutdown(); ret != nvml.ERROR_UNINITIALIZED {
		t.Errorf("one shutdown too many: %v", ret)
	}
}

func TestDriverGoesAndComes(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1})
	version := filepath.Join(n.Root(), "proc/driver/nvidia/version")
	api := nvml.New(nvml.WithLibraryPath(n.Library()))
	n.Unload()
	if ret := api.Init(); ret != nvml.ERROR_DRIVER_NOT_LOADED {
		t.Errorf("without a driver: %v", ret)
	}
	if _, err := os.Stat(version); !os.IsNotExist(err) {
		t.Errorf("proc without a driver: %v", err)
	}
	n.LoadDriver("590.44.01")
	if ret := api.Init(); ret != nvml.ERROR_LIB_RM_VERSION_MISMATCH {
		t.Errorf("with another driver: %v", ret)
	}
	if text, err := os.ReadFile(version); err != nil || !strings.Contains(string(text), " 590.44.01 ") {
		t.Errorf("proc with another driver: %q, %v", text, err)
	}
	n.LoadDriver("")
	if ret := api.Init(); ret != nvml.SUCCESS {
		t.Errorf("with its driver: %v", ret)
	}
	api.Shutdown()
}

func TestCalls(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1})
	d := device(t, open(t, n), 0)
	n.ResetCalls()
	for range 3 {
		d.GetPowerUsage()
	}
	same(t, "calls", n.AllCalls(), map[string]uint64{"nvmlDeviceGetPowerUsage": 3})
}

func TestScriptError(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1})
	d := device(t, open(t, n), 0)
	n.Line("gpu 0 power 3 +")
	if _, ret := d.GetPowerUsage(); ret != nvml.SUCCESS {
		t.Errorf("the script before must stay in force: %v", ret)
	}
	if err := n.ScriptError(); err == nil || !strings.Contains(err.Error(), "a number or name is missing") {
		t.Errorf("ScriptError() = %v", err)
	}
}

// A script by the environment, which cannot be read: only another process can
// have a library without a Node.
func TestScriptByEnvironment(t *testing.T) {
	if nvmltest.OwnProcess(t) {
		return
	}
	path := nvmltest.Build(t, nvmltest.Options{})
	script := filepath.Join(t.TempDir(), "node")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("gpus 1\nnonsense\n")
	t.Setenv("WARPGAUGE_FAKE_NVML", script)
	api := nvml.New(nvml.WithLibraryPath(path))
	if ret := api.Init(); ret != nvml.ERROR_UNKNOWN {
		t.Errorf("Init: %v, want %v", ret, nvml.ERROR_UNKNOWN)
	}
	write("gpus 2\ngpu * name A Board\n")
	if ret := api.Init(); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	defer api.Shutdown()
	same(t, "name", ok[string](t, "name")(device(t, api, 1).GetName()), "A Board")
}

// Everything at once, while the node changes.
func TestConcurrentUse(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 4})
	api := open(t, n)
	done := make(chan struct{})
	for i := range 4 {
		d := device(t, api, i)
		go func() {
			defer func() { done <- struct{}{} }()
			for range 500 {
				if p, ret := d.GetPowerUsage(); ret != nvml.SUCCESS || p < 70000 {
					t.Errorf("GPU %d: %d, %v", i, p, ret)
					return
				}
				set, ret := api.EventSetCreate()
				if ret != nvml.SUCCESS {
					t.Errorf("GPU %d: %v", i, ret)
					return
				}
				d.RegisterEvents(nvml.EventTypeXidCriticalError, set)
				set.Wait(0)
				set.Free()
			}
		}()
	}
	for i := range 100 {
		n.XID(i%4, uint64(i))
	}
	for range 4 {
		<-done
	}
	same(t, "held", n.Held().EventSets, 0)
}
