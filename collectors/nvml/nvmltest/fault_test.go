//go:build linux && cgo

package nvmltest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/collectors/nvml/nvmltest"
)

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
	text, err := os.ReadFile(nvmltest.New(t, nvmltest.Config{}).Library())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "libnvidia-ml.so.1") // without the file that names the script
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
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
	must(t, api.Init())
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
