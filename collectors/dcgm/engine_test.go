//go:build linux && cgo

package dcgm

import (
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/pkg/collector"
)

// TestConnect: each way to name an engine takes the call that knows it.
func TestConnect(t *testing.T) {
	e := dcgmtest.New(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
	for address, call := range map[string]string{
		"":                     "dcgmStartEmbedded_v2",
		"localhost":            "dcgmConnect_v2",
		"10.0.0.1:5566":        "dcgmConnect_v2",
		"[::1]:5566":           "dcgmConnect_v2",
		"tcp://localhost:5555": "dcgmConnect_v2",
		"/run/dcgm.sock":       "dcgmConnect_v2",
		"unix:///run/d.sock":   "dcgmConnect_v2",
		"vsock://2:5555":       "dcgmConnect_v3",
	} {
		e.ResetCalls()
		c := open1(t, Options{Library: e.Library(), Engine: address}, "DCGM_FI_DEV_GPU_TEMP")
		c.mustSample(t)
		if n := e.Calls(call); n != 1 {
			t.Errorf("engine %q: %d calls of %s, want 1", address, n, call)
		}
		if err := c.Close(); err != nil {
			t.Errorf("engine %q: close: %v", address, err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("engine %q: close again: %v", address, err)
		}
		if diff := cmp.Diff(dcgmtest.Counts{Inits: 1}, e.Counts()); diff != "" {
			t.Errorf("engine %q: left over (-want +got):\n%s", address, diff)
		}
	}
}

// TestEmbeddedLog: an embedded engine logs where the options say, never to standard
// output by itself.
func TestEmbeddedLog(t *testing.T) {
	for _, c := range []struct {
		o        Options
		file     string
		severity int
	}{
		{Options{}, "", 0},
		{Options{LogFile: "/var/log/dcgm.log", LogLevel: "DEBUG"}, "/var/log/dcgm.log", 5},
	} {
		e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
		c.o.Library = e.Library()
		open1(t, c.o, "DCGM_FI_DEV_GPU_TEMP")
		if file, severity, ok := e.Log(); !ok || file != c.file || severity != c.severity {
			t.Errorf("%+v: log %q at severity %d (%v), want %q at %d", c.o, file, severity, ok, c.file, c.severity)
		}
	}
}

// TestOpenSays: what is wrong, and what to do about it.
func TestOpenSays(t *testing.T) {
	f := func(name string, prepare func(e *dcgmtest.Engine, o *Options), want ...string) {
		t.Helper()
		e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
		o := remote(e)
		prepare(e, &o)
		_, err := openAs(t, o, "DCGM_FI_DEV_GPU_TEMP")
		if !errors.Is(err, collector.ErrNotLoaded) {
			t.Errorf("%s: got %v, want %v", name, err, collector.ErrNotLoaded)
			return
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q lacks %q", name, err, w)
			}
		}
		if n := e.Counts(); n.Connections+n.Embedded+n.Groups+n.FieldGroups != 0 {
			t.Errorf("%s: left over: %+v", name, n)
		}
	}
	f("no library", func(_ *dcgmtest.Engine, o *Options) { o.Engine, o.Library = "", filepath.Join(t.TempDir(), soname) }, "install datacenter-gpu-manager-4-core", "--dcgm-library")
	f("no library for an engine that was named", func(_ *dcgmtest.Engine, o *Options) { o.Library = filepath.Join(t.TempDir(), soname) },
		`host engine "localhost:5555" is not used`, "image with DCGM", "before Hopper")
	f("no listener", func(e *dcgmtest.Engine, _ *Options) { e.Stop(-21) }, "localhost:5555", "start nv-hostengine")
	f("init", func(e *dcgmtest.Engine, _ *Options) { e.Return("dcgmInit", -7) }, "initialise")
	f("embedded without driver", func(e *dcgmtest.Engine, o *Options) { o.Engine = ""; e.RefuseEmbedded(-56) }, "no NVML", "load NVIDIA's driver")
	f("embedded in use", func(e *dcgmtest.Engine, o *Options) { o.Engine = ""; e.RefuseEmbedded(-34) }, "in use")
	f("a file that is no library", func(e *dcgmtest.Engine, o *Options) { o.Library = e.Library() + ".node" })
}

// TestMissingFunctions: a library that lacks what nothing works without is
// refused by name; what else it lacks costs only what needs it.
func TestMissingFunctions(t *testing.T) {
	for _, name := range required {
		if name == "dcgmInit" || name == "dcgmWatchFields" || name == "dcgmEntitiesGetLatestValues" {
			e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1, Without: []string{name}})
			_, err := openAs(t, remote(e), "DCGM_FI_DEV_GPU_TEMP")
			if !errors.Is(err, collector.ErrNotLoaded) || !strings.Contains(err.Error(), "lacks "+name) {
				t.Errorf("without %s: %v", name, err)
			}
		}
	}
	for _, name := range []string{
		"dcgmVersionInfo", "dcgmHostengineVersionInfo", "dcgmGetGpuInstanceHierarchy", "dcgmGetCpuHierarchy", "dcgmGetNvLinkLinkStatus", "dcgmGetNvLinkP2PStatus",
		"dcgmGetValuesSince_v2", "dcgmProfGetSupportedMetricGroups", "dcgmHealthSet_v2", "dcgmHealthCheck",
	} {
		e := simulate(t, dcgmtest.Config{GPUs: 2, Without: []string{name}})
		c := open1(t, remote(e), everyKind...)
		c.mustSample(t)
		if v, _ := c.value(t, nvmltest.UUID(1), "DCGM_FI_DEV_GPU_TEMP"); v != 42 {
			t.Errorf("without %s: temperature of GPU 1 is %v, want 42", name, v)
		}
	}
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1, Without: []string{"dcgmConnect_v2"}})
	if _, err := openAs(t, remote(e), "DCGM_FI_DEV_GPU_TEMP"); err == nil || !strings.Contains(err.Error(), "update the library") {
		t.Errorf("without dcgmConnect_v2: %v", err)
	}
	e = simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1, Version: "4.4.1"})
	if _, err := openAs(t, Options{Library: e.Library(), Engine: "vsock://2:5555"}, "DCGM_FI_DEV_GPU_TEMP"); err == nil || !strings.Contains(err.Error(), "4.5 or newer") {
		t.Errorf("vsock with 4.4: %v", err)
	}
}

// everyKind asks for something of each kind of entity and each part.
var everyKind = []string{
	"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_NVLINK_GET_STATE", "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT",
	"DCGM_FI_DEV_CPU_UTIL_TOTAL", "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_EXP_P2P_STATUS", "DCGM_EXP_GPU_HEALTH_STATUS", "DCGM_EXP_CLOCK_EVENTS_COUNT", "label DCGM_FI_DRIVER_VERSION",
}

// TestVersionsDiffer: an engine that refuses the requests of a library of another version is
// a cause of its own, whichever call it refuses, and both versions are named.
func TestVersionsDiffer(t *testing.T) {
	for _, call := range []string{"dcgmConnect_v2", "dcgmGetEntityGroupEntities", "dcgmEntitiesGetLatestValues", "dcgmWatchFields"} {
		e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1, Version: "4.7.0", Library: "4.7.1"})
		e.Return(call, -12)
		_, err := openAs(t, remote(e), temperature)
		if !errors.Is(err, collector.ErrMismatch) || errors.Is(err, collector.ErrNotLoaded) {
			t.Errorf("%s: got %v, want %v", call, err, collector.ErrMismatch)
			continue
		}
		for _, w := range []string{"is of DCGM 4.7.1", "install the same version of both"} {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q lacks %q", call, err, w)
			}
		}
		if call != "dcgmConnect_v2" && !strings.Contains(err.Error(), "localhost:5555 of 4.7.0") {
			t.Errorf("%s: %q does not name the engine's version", call, err)
		}
	}
}

// TestNothingLeftBehind: an error in any call of Open, of any kind, leaves no
// connection behind, and so neither group nor watch.
func TestNothingLeftBehind(t *testing.T) {
	for _, code := range []int{-3, -26} {
		e := simulate(t, dcgmtest.Config{GPUs: 2})
		if err := open1(t, remote(e), temperature).Close(); err != nil { // initialises the library
			t.Fatal(err)
		}
		for n := 1; ; n++ {
			if n > 2000 {
				t.Fatal("more than 2000 calls in one Open")
			}
			e.FailNth(n, code)
			c, err := openAs(t, remote(e), everyKind...)
			failed := e.Failed()
			e.FailNth(0, 0)
			if err == nil {
				if err := c.Close(); err != nil {
					t.Errorf("code %d in call %d, %s: close: %v", code, n, failed, err)
				}
			}
			if diff := cmp.Diff(dcgmtest.Counts{Inits: 1}, e.Counts()); diff != "" {
				t.Fatalf("code %d in call %d, %s (Open: %v) left over (-want +got):\n%s", code, n, failed, err, diff)
			}
			if failed == "" {
				break
			}
		}
	}
}

// TestLibraryOfAnotherVersion is refused by its name, or that of the file behind it.
func TestLibraryOfAnotherVersion(t *testing.T) {
	dir := t.TempDir()
	older := filepath.Join(dir, "libdcgm.so.3.3.5")
	link := filepath.Join(dir, "dcgm.so")
	for _, err := range []error{os.WriteFile(older, nil, 0o600), os.Symlink(older, link)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{older, link, "libdcgm.so.3", "/usr/lib64/libdcgm.so.5"} {
		_, err := openAs(t, Options{Library: path}, temperature)
		if !errors.Is(err, collector.ErrNotLoaded) || !strings.Contains(err.Error(), "libdcgm.so.4 is needed") {
			t.Errorf("library %q: %v", path, err)
		}
	}
	for _, path := range []string{"libdcgm.so.4", "/x/libdcgm.so.4.6.0", "/x/libdcgm.so"} {
		if names, err := (Options{Library: path}).candidates(); err != nil || len(names) != 1 || names[0] != path {
			t.Errorf("library %q: candidates %q, %v", path, names, err)
		}
	}
}

// TestBadScript: a simulation that is not what its test wrote is reported, not used.
func TestBadScript(t *testing.T) {
	e := simulate(t, dcgmtest.Config{Preset: "pcie", Lines: []string{"value 1 0 150 num warm"}})
	if _, err := openAs(t, remote(e), temperature); err == nil {
		t.Error("it was opened")
	}
	if err := e.Trouble(); err == nil || !strings.Contains(err.Error(), "cannot read value 1 0 150 num warm") {
		t.Errorf("got %v", err)
	}
}

// TestNothingIsLinked: no call of DCGM is left to the dynamic linker, which would
// end the process if a library lacks the function.
func TestNothingIsLinked(t *testing.T) {
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.ImportedSymbols()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, s := range symbols {
		found = found || s.Name == "dlsym"
		if strings.HasPrefix(s.Name, "dcgm") {
			t.Errorf("%s is linked", s.Name)
		}
	}
	if !found {
		t.Error("not even dlsym is linked: these are not the symbols of this binary")
	}
}
