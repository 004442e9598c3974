//go:build linux && cgo

package dcgm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/field"
)

// TestConnect checks that each form of address uses the right call, and that an embedded engine logs only to the
// configured file, never to standard output.
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
		n := e.Calls(call)
		testkit.ErrorIf(t, n != 1, "engine %q: %d calls of %s, want 1", address, n, call)
		err := c.Close()
		testkit.ErrorIf(t, err != nil, "engine %q: close: %v", address, err)
		err = c.Close()
		testkit.ErrorIf(t, err != nil, "engine %q: close again: %v", address, err)
		testkit.Equal(t, fmt.Sprintf("engine %q: left over", address), dcgmtest.Counts{Inits: 1}, e.Counts())
	}
	for file, level := range map[string]string{"": "", "/var/log/dcgm.log": "DEBUG"} {
		must(t, open1(t, Options{Library: e.Library(), LogFile: file, LogLevel: level}, temperature).Close())
		got, severity, ok := e.Log()
		testkit.ErrorIf(t, !ok || got != file || severity != severities[level], "log %q at severity %d (%v), want %q at %s", got, severity, ok, file, level)
	}
}

// TestOneEmbeddedEngine: a second one in this process is refused, and does not end the first.
func TestOneEmbeddedEngine(t *testing.T) {
	e := dcgmtest.New(t, dcgmtest.Config{GPUs: 1})
	c := open1(t, embedded(e), temperature)
	_, err := openAs(t, embedded(e), temperature)
	testkit.ErrorIf(t, !isStatus(err, statusInUse), "a second engine: %v, want %v", err, statusInUse)
	c.mustSample(t)
}

// TestOpenSays checks that errors of Open name the problem and the remedy, also for a library without required functions
// and for one whose name or symbolic link has another version.
func TestOpenSays(t *testing.T) {
	f := func(name string, prepare func(c *dcgmtest.Config, o *Options) func(e *dcgmtest.Engine), want ...string) {
		t.Helper()
		c, o := dcgmtest.Config{Preset: "pcie", GPUs: 1}, Options{Engine: "localhost:5555"}
		then := prepare(&c, &o)
		e := dcgmtest.New(t, c)
		if o.Library == "" {
			o.Library = e.Library()
		}
		if then != nil {
			then(e)
		}
		_, err := openAs(t, o, temperature)
		if !errors.Is(err, collector.ErrNotLoaded) {
			t.Errorf("%s: got %v, want %v", name, err, collector.ErrNotLoaded)
			return
		}
		for _, w := range want {
			testkit.ErrorIf(t, !strings.Contains(err.Error(), w), "%s: %q lacks %q", name, err, w)
		}
		n := e.Counts()
		testkit.ErrorIf(t, n.Connections+n.Embedded+n.Groups+n.FieldGroups != 0, "%s: left over: %+v", name, n)
	}
	engine := func(change func(e *dcgmtest.Engine)) func(*dcgmtest.Config, *Options) func(*dcgmtest.Engine) {
		return func(*dcgmtest.Config, *Options) func(*dcgmtest.Engine) { return change }
	}
	options := func(change func(c *dcgmtest.Config, o *Options)) func(*dcgmtest.Config, *Options) func(*dcgmtest.Engine) {
		return func(c *dcgmtest.Config, o *Options) func(*dcgmtest.Engine) { change(c, o); return nil }
	}
	embed := func(code int) func(*dcgmtest.Config, *Options) func(*dcgmtest.Engine) {
		return func(_ *dcgmtest.Config, o *Options) func(*dcgmtest.Engine) {
			o.Engine = ""
			return func(e *dcgmtest.Engine) { e.Behave("embedding", code) }
		}
	}
	without := func(name string) func(*dcgmtest.Config, *Options) func(*dcgmtest.Engine) {
		return options(func(c *dcgmtest.Config, _ *Options) { c.Without = []string{name} })
	}
	dir := t.TempDir()
	older, link := filepath.Join(dir, "libdcgm.so.3.3.5"), filepath.Join(dir, "dcgm.so")
	for _, err := range []error{os.WriteFile(older, nil, 0o600), os.Symlink(older, link)} {
		must(t, err)
	}
	f("no library", options(func(_ *dcgmtest.Config, o *Options) { o.Engine, o.Library = "", filepath.Join(dir, soname) }), "install datacenter-gpu-manager-4-core", "--dcgm-library")
	f("no library for an engine that was named", options(func(_ *dcgmtest.Config, o *Options) { o.Library = filepath.Join(dir, soname) }),
		`host engine "localhost:5555" is not used`, "image with DCGM", "before Hopper")
	f("no listener", engine(func(e *dcgmtest.Engine) { e.Stop(-21) }), "localhost:5555", "start nv-hostengine")
	f("init", engine(func(e *dcgmtest.Engine) { e.Return("dcgmInit", -7) }), "initialise")
	f("embedded without driver", embed(-56), "no NVML", "load NVIDIA's driver")
	f("embedded in use", embed(-34), "in use")
	for _, name := range []string{"dcgmInit", "dcgmWatchFields", "dcgmEntitiesGetLatestValues"} {
		f("without "+name, without(name), "lacks "+name)
	}
	f("without dcgmConnect_v2", without("dcgmConnect_v2"), "update the library")
	for _, path := range []string{older, link, "libdcgm.so.3", "/usr/lib64/libdcgm.so.5"} {
		f(path, options(func(_ *dcgmtest.Config, o *Options) { o.Library = path }), "libdcgm.so.4 is needed")
	}
	for _, path := range []string{"libdcgm.so.4", "/x/libdcgm.so.4.6.0", "/x/libdcgm.so"} {
		names, err := (Options{Library: path}).candidates()
		testkit.ErrorIf(t, err != nil || len(names) != 1 || names[0] != path, "library %q: candidates %q, %v", path, names, err)
	}
}

// TestMissingFunctions checks that a function missing in the library costs only the fields that need it.
func TestMissingFunctions(t *testing.T) {
	for _, name := range []string{
		"dcgmVersionInfo", "dcgmHostengineVersionInfo", "dcgmGetGpuInstanceHierarchy", "dcgmGetCpuHierarchy", "dcgmGetNvLinkLinkStatus", "dcgmGetNvLinkP2PStatus",
		"dcgmGetValuesSince_v2", "dcgmProfGetSupportedMetricGroups", "dcgmHealthSet_v2", "dcgmHealthCheck",
	} {
		e := dcgmtest.New(t, dcgmtest.Config{GPUs: 2, Without: []string{name}})
		c := open1(t, remote(e), everyKind...)
		c.mustSample(t)
		v, _ := c.value(t, nvmltest.UUID(1), temperature)
		testkit.ErrorIf(t, v != 42, "without %s: temperature of GPU 1 is %v, want 42", name, v)
	}
}

// everyKind lists a field for each kind of entity and each part.
var everyKind = []string{
	"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_NVLINK_GET_STATE", "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT",
	"DCGM_FI_DEV_CPU_UTIL_TOTAL", "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_EXP_P2P_STATUS", "DCGM_EXP_GPU_HEALTH_STATUS", "DCGM_EXP_CLOCK_EVENTS_COUNT", "label DCGM_FI_DRIVER_VERSION",
}

// TestVersionsDiffer checks that Open returns ErrMismatch with both versions, whichever call of the other version's
// library the engine refuses.
func TestVersionsDiffer(t *testing.T) {
	for _, call := range []string{"dcgmConnect_v2", "dcgmGetEntityGroupEntities", "dcgmEntitiesGetLatestValues", "dcgmWatchFields"} {
		e := dcgmtest.New(t, dcgmtest.Config{Preset: "pcie", GPUs: 1, Version: "4.7.0", Library: "4.7.1"})
		e.Return(call, -12)
		_, err := openAs(t, remote(e), temperature)
		if !errors.Is(err, collector.ErrMismatch) || errors.Is(err, collector.ErrNotLoaded) {
			t.Errorf("%s: got %v, want %v", call, err, collector.ErrMismatch)
			continue
		}
		for _, w := range []string{"is of DCGM 4.7.1", "install the same version of both"} {
			testkit.ErrorIf(t, !strings.Contains(err.Error(), w), "%s: %q lacks %q", call, err, w)
		}
		testkit.ErrorIf(t, call != "dcgmConnect_v2" && !strings.Contains(err.Error(), "localhost:5555 of 4.7.0"), "%s: %q does not name the engine's version", call, err)
	}
}

// TestNothingLeftBehind checks that an error in any call of Open leaves no connection, group or watch behind.
func TestNothingLeftBehind(t *testing.T) {
	for _, code := range []int{-3, -26} {
		e := dcgmtest.New(t, dcgmtest.Config{GPUs: 2})
		testkit.Must(t, open1(t, remote(e), temperature).Close()) // initialises the library
		for n := 1; ; n++ {
			testkit.FatalIf(t, n > 2000, "more than 2000 calls in one Open")
			e.FailNth(n, code)
			c, err := openAs(t, remote(e), everyKind...)
			failed := e.Failed()
			e.FailNth(0, 0)
			if err == nil {
				err := c.Close()
				testkit.ErrorIf(t, err != nil, "code %d in call %d, %s: close: %v", code, n, failed, err)
			}
			diff := cmp.Diff(dcgmtest.Counts{Inits: 1}, e.Counts())
			testkit.FatalIf(t, diff != "", "code %d in call %d, %s (Open: %v) left over (-want +got):\n%s", code, n, failed, err, diff)
			if failed == "" {
				break
			}
		}
	}
}

// TestEngineFallsSilent checks that a sample waits for an engine that does not answer, and succeeds when the engine
// continues.
func TestEngineFallsSilent(t *testing.T) {
	onBoth(t, hardware{gpus: 2}, func(t *testing.T, m machine) {
		c := started(t, m, temperature, power)
		release := m.silence()
		sampled := make(chan error, 1)
		go func() { sampled <- c.sample(0) }()
		select {
		case err := <-sampled:
			t.Fatalf("a sample of an engine that does not answer: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		release()
		err := <-sampled
		testkit.ErrorIf(t, err != nil && !errors.Is(err, collector.ErrStalled), "the sample that waited: %v", err)
		c.until(t, 0, "values again", func(err error) bool { return err == nil })
	})
}

// TestCalls checks the reported costs of library calls. A call that the library gives up is an error of the source, which
// recovers with the engine.
func TestCalls(t *testing.T) {
	e := dcgmtest.New(t, dcgmtest.Config{Preset: "pcie", GPUs: 8})
	c := open1(t, remote(e), temperature, xidCount)
	e.Return("dcgmEntitiesGetLatestValues", -11)
	err := c.sample(0)
	testkit.ErrorIf(t, err == nil || errors.Is(err, collector.ErrColumnsChanged), "got %v, want an error that asks for no new Open", err)
	e.Return("dcgmEntitiesGetLatestValues", 0)
	e.XID(0, 13)
	for range 3 {
		c.mustSample(t)
	}
	got := map[string]uint64{}
	for _, cost := range c.sources[0].(collector.CallMeter).Calls() {
		got[cost.Call] += cost.Count
		testkit.ErrorIf(t, cost.Time <= 0, "%s took %v", cost.Call, cost.Time)
	}
	if got["dcgmEntitiesGetLatestValues"] != 6 || got["dcgmGetValuesSince_v2"] != 1 { // at the start, values with XIDs, one of which fails, and one for the engine's life
		t.Errorf("calls: %v", got)
	}
}

// TestNotOffered checks that fields which the engine or the library does not offer cost no other field, have the engine's
// answer as their reason, and are logged once. Open requests a profiling field that no metric group has only if the
// groups cannot be read.
func TestNotOffered(t *testing.T) {
	const active, integers = "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_PIPE_INT_ACTIVE"
	noProfiling := func(code int) func(*dcgmtest.Engine) { return func(e *dcgmtest.Engine) { e.Behave("profiling", code) } }
	returns := func(function string, code int) func(*dcgmtest.Engine) {
		return func(e *dcgmtest.Engine) { e.Return(function, code) }
	}
	unlisted := func(code int) func(*dcgmtest.Engine) {
		return func(e *dcgmtest.Engine) { e.Behave("unlisted 9", code) }
	}
	for _, tt := range []struct {
		what    string
		field   string
		column  field.ID
		prepare func(*dcgmtest.Engine)
		without string // a function of the library
		offered bool
		log     string
		lines   int
	}{
		{"health without its module", healthName, field.GPUHealth, returns("dcgmHealthSet_v2", -33), "", false, "host engine cannot watch health; skipping the field", 1},
		{"unsupported health", healthName, field.GPUHealth, returns("dcgmHealthSet_v2", -6), "", false, "host engine cannot watch health; skipping the field", 1},
		{"peers of a library without", peersName, field.P2PStatus, nil, "dcgmGetNvLinkP2PStatus", false, "library lacks dcgmGetNvLinkP2PStatus; skipping NVLink peer status", 1},
		{"XIDs", xidCount, field.XIDEvent, func(e *dcgmtest.Engine) { e.Refuse(dcgmtest.All(dcgmtest.KindGPU), int(field.XIDErrors), -6) }, "", false, "", 0},
		{"adapters of an old engine", "DCGM_FI_DEV_CONNECTX_HEALTH", 1300, unlisted(-1), "", false, "cannot list entities", 1},
		{"unsupported adapters", "DCGM_FI_DEV_CONNECTX_HEALTH", 1300, unlisted(-6), "", false, "cannot list entities", 0},
		{"adapters without their module", "DCGM_FI_DEV_CONNECTX_HEALTH", 1300, unlisted(-33), "", false, "cannot list entities", 0},
		{"instances without permission", "DCGM_FI_DEV_POWER_USAGE", 155, returns("dcgmGetGpuInstanceHierarchy", -17), "", true, "cannot list entities", 1},
		{"a field in a metric group", active, 1002, nil, "", true, "", 0},
		{"a field in no metric group", integers, 1016, nil, "", false, "", 0},
		{"no profiling module", active, 1002, noProfiling(-33), "", false, "", 0},
		{"GPUs without profiling", active, 1002, noProfiling(-36), "", false, "", 0},
		{"unknown metric groups", integers, 1016, returns("dcgmProfGetSupportedMetricGroups", -3), "", true, "", 0},
		{"a library that cannot ask for metric groups", integers, 1016, nil, "dcgmProfGetSupportedMetricGroups", true, "", 0},
	} {
		c := dcgmtest.Config{GPUs: 2}
		if tt.without != "" {
			c.Without = []string{tt.without}
		}
		e := dcgmtest.New(t, c)
		if tt.prepare != nil {
			tt.prepare(e)
		}
		o := open1(t, remote(e), temperature, tt.field)
		o.mustSample(t)
		offered := slices.ContainsFunc(o.sources[0].Columns(), func(col collector.Column) bool { return col.Field == tt.column })
		if offered != tt.offered || !o.has(t, nvmltest.UUID(1), temperature) || len(devices(o)) != 2 {
			t.Errorf("%s: offered %v, want %v; devices %v", tt.what, offered, tt.offered, devices(o))
		}
		if n := o.logs.FilterMessageSnippet(tt.log).Len(); tt.log != "" && n != tt.lines {
			t.Errorf("%s: logged %d times, want %d", tt.what, n, tt.lines)
		}
		if want := map[string]string{"GPUs without profiling": "profiling is not supported [DCGM -36]", "health without its module": "module not loaded [DCGM -33]"}[tt.what]; want != "" {
			testkit.Equal(t, tt.what, "unsupported: the host engine answers: "+want, collectortest.ReasonOf(t, o.sources[0], o.row[0], 0, tt.field))
		}
		unread := map[string]string{"adapters of an old engine": `cannot list entities of kind "ConnectX": bad parameter [DCGM -1]`,
			"instances without permission": "cannot list MIG instances: no permission [DCGM -17]"}[tt.what]
		testkit.Equal(t, tt.what+": what is said of the GPU", unread, devices(o)[0].Unread)
		if n := e.Counts().Groups; !tt.offered && n != 1 { // the temperature's
			t.Errorf("%s: %d groups", tt.what, n)
		}
	}
}

// TestFailsForATime checks that a failing optional call leaves blanks, never a healthy result, costs no other value and is
// logged once. XIDs that occur meanwhile are counted later.
func TestFailsForATime(t *testing.T) {
	for _, tt := range []struct {
		name, call string
		code       int
		field      field.ID
		cells      int
		log        string
	}{
		{healthName, "dcgmHealthCheck", -3, field.GPUHealth, len(healthWatches), "cannot read GPU health"},
		{peersName, "dcgmGetNvLinkP2PStatus", -18, field.P2PStatus, 1, "cannot read NVLink peer status"},
		{xidCount, "dcgmGetValuesSince_v2", -3, field.XIDEvent, 1, "cannot read XIDs"},
	} {
		e := dcgmtest.New(t, dcgmtest.Config{GPUs: 2})
		c := open1(t, remote(e), temperature, tt.name)
		c.mustSample(t)
		e.Return(tt.call, tt.code)
		e.XID(0, 13)
		cells := func() int {
			c.mustSample(t)
			return len(c.cellsOf(tt.field, 0, map[field.ID]string{field.GPUHealth: "health_watch"}[tt.field]))
		}
		for range 2 {
			n := cells()
			testkit.ErrorIf(t, n != 0 || !c.has(t, nvmltest.UUID(0), temperature), "%s: %d cells, or no temperature", tt.name, n)
		}
		if tt.field != field.XIDEvent { // an event is not blank
			testkit.Has(t, "reason", collectortest.ReasonOf(t, c.sources[0], c.row[0], 0, tt.name), fmt.Sprintf("the host engine answers: %v", status(tt.code)))
		}
		n := c.logs.FilterMessageSnippet(tt.log).Len()
		testkit.ErrorIf(t, n != 1, "%s: logged %d times, want once", tt.name, n)
		e.Return(tt.call, 0)
		testkit.Equal(t, fmt.Sprintf("%s: cells afterwards", tt.name), tt.cells, cells())
	}
}
