//go:build linux && cgo

package dcgm

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/eventually"
	"warpgauge/pkg/field"
)

// told are the cells of a field of a device that have a value: by one label, the
// other labels and the value.
func (c *opened) told(id field.ID, device int, by string) map[string]string {
	out := map[string]string{}
	for i, col := range c.sources[0].Columns() {
		v := c.row[0][i]
		if col.Field != id || col.Device != device || math.IsNaN(v) {
			continue
		}
		key, rest := "", ""
		for _, l := range col.Labels {
			if l.Name == by {
				key = l.Value
			} else {
				rest += l.Value
			}
		}
		if _, twice := out[key]; twice {
			rest = "twice: " + rest
		}
		out[key] = fmt.Sprintf("%s %v", rest, v)
	}
	return out
}

// well is what a GPU has with which nothing is wrong, but for what is said.
func well(but ...string) map[string]string {
	out := map[string]string{}
	for _, w := range healthWatches {
		out[w.name] = "DCGM_FR_OK 0"
	}
	for i := 0; i < len(but); i += 2 {
		out[but[i]] = but[i+1]
	}
	return out
}

const healthName = "DCGM_EXP_GPU_HEALTH_STATUS"

// TestHealth: every watch of every GPU has one value, from the first sample on.
func TestHealth(t *testing.T) {
	e := simulate(t, dcgmtest.Config{GPUs: 2})
	c := open1(t, remote(e), healthName)
	c.mustSample(t)
	for gpu := range 2 {
		if diff := cmp.Diff(well(), c.told(field.GPUHealth, gpu, "health_watch")); diff != "" {
			t.Errorf("GPU %d (-want +got):\n%s", gpu, diff)
		}
	}
}

// TestHealthReasons: a new reason takes a new Open, after which it comes and goes
// by itself; the worst of a watch is shown; what is of other entities is left out.
func TestHealthReasons(t *testing.T) {
	e := simulate(t, dcgmtest.Config{GPUs: 2})
	old := open1(t, remote(e), healthName)
	old.mustSample(t)
	e.Incident(dcgmtest.GPU(1), 0x10, 10, 85, "a row waits")
	e.Incident(dcgmtest.GPU(1), 0x10, 20, 80, "a row is lost")
	e.Incident(dcgmtest.GPU(0), healthAll, 20, 120, "gone")
	e.Incident(dcgmtest.GPU(0), 0x80, 10, 999, "of a newer engine")
	e.Incident(dcgmtest.Switch(0), 0x800, 20, 15, "no GPU")
	if err := old.sample(0); !errors.Is(err, collector.ErrColumnsChanged) {
		t.Fatalf("sample with a new reason: %v", err)
	}
	if got := old.told(field.GPUHealth, 1, "health_watch"); got["MEM"] != "" || got["SM"] != "DCGM_FR_OK 0" {
		t.Errorf("a watch whose reason has no column must be blank, and no other: %v", got)
	}

	next := open1(t, remote(e), healthName)
	var err error
	for range 3 { // each reason that a worse one hid takes another
		if err = next.sample(0); !errors.Is(err, collector.ErrColumnsChanged) {
			break
		}
		next = open1(t, remote(e), healthName)
	}
	if err != nil {
		t.Fatal(err)
	}
	want := []map[string]string{
		well("ALL", "DCGM_FR_FALLEN_OFF_BUS 20", "THERMAL", "DCGM_FR_UNKNOWN(999) 10"),
		well("MEM", "DCGM_FR_ROW_REMAP_FAILURE 20"),
	}
	for gpu := range want {
		if diff := cmp.Diff(want[gpu], next.told(field.GPUHealth, gpu, "health_watch")); diff != "" {
			t.Errorf("GPU %d (-want +got):\n%s", gpu, diff)
		}
	}
	e.Healthy()
	if err := next.sample(0); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(well(), next.told(field.GPUHealth, 1, "health_watch")); diff != "" {
		t.Errorf("healthy again (-want +got):\n%s", diff)
	}
}

// TestHealthUnknown: a check that fails or hangs leaves blanks, never a pass, and
// holds up no other value.
func TestHealthUnknown(t *testing.T) {
	e := simulate(t, dcgmtest.Config{GPUs: 2})
	c := open1(t, remote(e), healthName, "DCGM_FI_DEV_GPU_TEMP")
	c.mustSample(t)
	check := func(what string) {
		t.Helper()
		if err := c.sample(0); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if got := c.told(field.GPUHealth, 0, "health_watch"); len(got) != 0 {
			t.Errorf("%s: health is %v", what, got)
		}
		if v, _ := c.value(t, c.sources[0].Devices()[0].ID, "DCGM_FI_DEV_GPU_TEMP"); math.IsNaN(v) {
			t.Errorf("%s: no temperature", what)
		}
	}
	e.Return("dcgmHealthCheck", -3)
	check("check fails")
	check("check fails again")
	if n := c.logs.FilterMessage("health is unknown").Len(); n != 1 {
		t.Errorf("told %d times that health is unknown, want once", n)
	}
	e.Return("dcgmHealthCheck", 0)

	release := e.Hang("dcgmHealthCheck")
	defer release()
	check("check hangs")
	check("check hangs on")
	if n := e.Hanging(); n != 1 {
		t.Errorf("%d checks hang, want one at a time", n)
	}
	release()
	for end := time.Now().Add(eventually.Patience); len(c.told(field.GPUHealth, 0, "health_watch")) == 0; {
		if time.Now().After(end) {
			t.Fatal("no health after the hang")
		}
		if err := c.sample(0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHealthClosedWhileItHangs: what the call uses is given back when it returns.
func TestHealthClosedWhileItHangs(t *testing.T) {
	e := simulate(t, dcgmtest.Config{GPUs: 2})
	c := open1(t, remote(e), healthName)
	release := e.Hang("dcgmHealthCheck")
	defer release()
	if err := c.sample(0); err != nil {
		t.Fatal(err)
	}
	e.WaitHanging(1)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if n := e.Counts().Connections; n != 1 {
		t.Errorf("%d connections while a call is in progress", n)
	}
	release()
	for end := time.Now().Add(eventually.Patience); e.Counts().Connections+e.Counts().Groups+e.Counts().HealthWatches > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still held: %+v", e.Counts())
		}
	}
}

// TestHealthNotOffered: an engine that cannot has no column, and one line says so.
func TestHealthNotOffered(t *testing.T) {
	for _, code := range []int{-33, -6, -1} {
		e := simulate(t, dcgmtest.Config{GPUs: 2})
		e.Return("dcgmHealthSet_v2", code)
		c := open1(t, remote(e), healthName, "DCGM_FI_DEV_GPU_TEMP")
		if has := slices.ContainsFunc(c.sources[0].Columns(), func(col collector.Column) bool { return col.Field == field.GPUHealth }); has {
			t.Errorf("code %d: there are columns of health", code)
		}
		if n := c.logs.FilterMessage("host engine does not watch health, it is left out").Len(); n != 1 {
			t.Errorf("code %d: told %d times, want once", code, n)
		}
		if n := e.Counts().Groups; n != 1 { // of the temperature
			t.Errorf("code %d: %d groups", code, n)
		}
	}
}

// TestErrorNames: codes are those that dcgm-exporter prints.
func TestErrorNames(t *testing.T) {
	for code, want := range map[uint32]string{
		0: "DCGM_FR_OK", 3: "DCGM_FR_PCI_REPLAY_RATE", 10: "DCGM_FR_CLOCK_THROTTLE_THERMAL", 12: "DCGM_FR_CLOCK_THROTTLE_POWER",
		14: "DCGM_FR_NVLINK_DOWN", 43: "DCGM_FR_THROTTLING_VIOLATION", 80: "DCGM_FR_ROW_REMAP_FAILURE", 101: "DCGM_FR_XID_ERROR",
		116: "DCGM_FR_BROKEN_P2P_NVLINK_WRITER_DEVICE", 120: "DCGM_FR_FALLEN_OFF_BUS", 133: "DCGM_FR_CPU_SDC_TEST_FAILED",
		134: "DCGM_FR_UNKNOWN(134)", 1 << 31: "DCGM_FR_UNKNOWN(2147483648)",
	} {
		if got := errorName(code); got != want {
			t.Errorf("code %d is %q, want %q", code, got, want)
		}
	}
	names := map[string]bool{}
	for code := range uint32(len(errorCodes)) {
		names[errorName(code)] = true
	}
	if len(names) != 134 {
		t.Errorf("%d names for 134 codes: %v", len(names), slices.Sorted(maps.Keys(names)))
	}
}
