//go:build linux && cgo

package dcgm

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Tests against NVIDIA's own library and engine run where DCGM_TEST_REAL is 1 and
// the loader finds libdcgm.so.4. DCGM_TEST_ENGINE names the engine, "" embeds one.
// Those that change the node need an engine over a simulated NVML, whose directory
// (nvmlfake --dir) DCGM_TEST_NVML names.

func realOptions(t *testing.T) Options {
	t.Helper()
	if os.Getenv("DCGM_TEST_REAL") != "1" {
		t.Skip("DCGM_TEST_REAL is not 1")
	}
	ownProcess(t)
	return Options{Engine: os.Getenv("DCGM_TEST_ENGINE"), SlowInterval: time.Second}
}

// nodeScript is the script of the simulated NVML under the engine. What a test
// appends is taken back at its end, but for events, which must not go back.
type nodeScript struct {
	t    *testing.T
	dir  string
	path string
}

func realNode(t *testing.T) *nodeScript {
	t.Helper()
	dir := os.Getenv("DCGM_TEST_NVML")
	if dir == "" {
		t.Skip("DCGM_TEST_NVML names no simulated NVML")
	}
	n := &nodeScript{t, dir, filepath.Join(dir, "script")}
	before := n.read()
	t.Cleanup(func() {
		events := ""
		for line := range strings.Lines(n.read()) {
			if strings.HasPrefix(line, "event ") && !strings.Contains(before, line) {
				events += line
			}
		}
		n.write(before + events)
	})
	return n
}

func (n *nodeScript) read() string {
	n.t.Helper()
	text, err := os.ReadFile(n.path)
	if err != nil {
		n.t.Fatal(err)
	}
	return string(text)
}

func (n *nodeScript) write(text string) {
	n.t.Helper()
	if err := os.WriteFile(n.path+".next", []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
	if err := os.Rename(n.path+".next", n.path); err != nil {
		n.t.Fatal(err)
	}
	if err := nvmltest.Reread(n.dir); err != nil {
		n.t.Fatal(err)
	}
}

func (n *nodeScript) add(format string, args ...any) {
	n.t.Helper()
	n.write(n.read() + fmt.Sprintf(format, args...) + "\n")
}

func (n *nodeScript) xid(gpu, code int) {
	n.t.Helper()
	id := strings.Count(n.read(), "\nevent ") + 1
	n.add("event %d %d 8 %d 4294967295 4294967295", id, gpu, code)
}

// until samples a source until done says so.
func (c *opened) until(t *testing.T, source int, what string, limit time.Duration, done func(err error) bool) {
	t.Helper()
	var err error
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err = c.sample(source); done(err) {
			return
		}
	}
	t.Fatalf("%s: not within %v; last error: %v", what, limit, err)
}

// TestRealProfiling: all profiling fields at once are more than DCGM takes in one
// group, and all fields more than one field group holds.
func TestRealProfiling(t *testing.T) {
	o := realOptions(t)
	realNode(t)
	var names []string
	for _, d := range field.All() {
		if askable(d) {
			names = append(names, d.Name)
		}
	}
	c := open1(t, o, names...)
	c.until(t, 0, "values of all kinds", time.Minute, func(err error) bool {
		for _, name := range []string{"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_NVLINK_L17_RX_BYTES"} {
			if v, _ := c.value(t, c.sources[0].Devices()[0].ID, name); math.IsNaN(v) {
				return false
			}
		}
		return err == nil
	})
}

// settled opens a collector anew until it knows the reasons of health that there
// are: an engine remembers XIDs as long as it lives.
func settled(t *testing.T, o Options, names ...string) *opened {
	t.Helper()
	c := open1(t, o, names...)
	c.until(t, 0, "first values", 10*time.Second, func(err error) bool {
		if errors.Is(err, collector.ErrColumnsChanged) {
			*c = *open1(t, o, names...)
		}
		return err == nil
	})
	return c
}

// TestRealHealth: an XID shows once as an event, and in health until the engine is
// gone, also for a collector that is opened after it; peers are all in reach.
func TestRealHealth(t *testing.T) {
	o := realOptions(t)
	n := realNode(t)
	names := []string{"DCGM_EXP_GPU_HEALTH_STATUS", "DCGM_EXP_P2P_STATUS", "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_FI_DEV_GPU_TEMP"}
	c := settled(t, o, names...)
	if got, want := c.told(field.P2PStatus, 0, "peer_gpu"), len(c.sources[0].Devices())-1; len(got) != want {
		t.Errorf("GPU 0 has the status of %d peers, want %d", len(got), want)
	}
	events := map[float64]int{}
	count := func(c *opened) {
		for i, col := range c.sources[0].Columns() {
			if v := c.row[0][i]; col.Field == field.XIDEvent && !math.IsNaN(v) {
				events[v]++
			}
		}
	}
	n.xid(0, 79)
	n.xid(0, 79)
	n.xid(1, 31)
	c.until(t, 0, "XIDs as events", 15*time.Second, func(error) bool { count(c); return events[79] == 2 && events[31] == 1 })

	next := settled(t, o, names...)
	next.until(t, 0, "health with its reasons", 15*time.Second, func(error) bool {
		count(next)
		return next.told(field.GPUHealth, 0, "health_watch")["ALL"] == "DCGM_FR_FALLEN_OFF_BUS 20" &&
			next.told(field.GPUHealth, 1, "health_watch")["MEM"] == "DCGM_FR_XID_ERROR 10"
	})
	for range 30 { // polls of the engine add nothing
		for _, both := range []*opened{c, next} {
			_ = both.sample(0)
			count(both)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if events[79] != 2 || events[31] != 1 {
		t.Errorf("XIDs counted: %v, want 79 twice and 31 once", events)
	}
}

// TestRealHang: a GPU whose calls hang takes the engine's polling along, and that
// is told; when they return, all is well again.
func TestRealHang(t *testing.T) {
	o := realOptions(t)
	n := realNode(t)
	c := settled(t, o, "DCGM_FI_DEV_GPU_TEMP", "DCGM_EXP_P2P_STATUS", "DCGM_EXP_GPU_HEALTH_STATUS")
	before := n.read()
	n.add("fault 1 * hang")
	c.until(t, 0, "a stalled GPU", 30*time.Second, func(err error) bool { return errors.Is(err, collector.ErrStalled) })
	n.write(before)
	c.until(t, 0, "values again", 30*time.Second, func(err error) bool { return err == nil })
}

// TestRealLoss: a GPU that fell off the bus is lost, as a rescan sees, too; the
// others go on, and it comes back.
func TestRealLoss(t *testing.T) {
	o := realOptions(t)
	n := realNode(t)
	c := settled(t, o, "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_GPU_UTIL")
	before := n.read()
	n.add("fault 2 * code GPU_IS_LOST")
	c.until(t, 0, "GPU 2 lost", 30*time.Second, func(err error) bool {
		var one *collector.DeviceError
		return errors.Is(err, collector.ErrDeviceLost) && errors.As(err, &one) && one.Device == 2
	})
	if v, _ := c.value(t, c.sources[0].Devices()[3].ID, "DCGM_FI_DEV_GPU_TEMP"); math.IsNaN(v) {
		t.Error("GPU 3 has no temperature")
	}
	if changed, err := c.Rescan(t.Context()); !changed || err != nil {
		t.Errorf("rescan without GPU 2: %v, %v", changed, err)
	}
	n.write(before)
	c.until(t, 0, "GPU 2 again", 30*time.Second, func(err error) bool { return err == nil })
}

// TestRealPause: a list without profiling fields, which is what a pause is, ends
// that the engine reads them, and a list with them begins it again.
func TestRealPause(t *testing.T) {
	o := realOptions(t)
	realNode(t)
	const temperature, profiling = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_PROF_SM_ACTIVE"
	value := func(c *opened) float64 { v, _ := c.value(t, c.sources[0].Devices()[0].ID, profiling); return v }
	before := open1(t, o, temperature, profiling)
	before.until(t, 0, "a profiling value", 10*time.Second, func(error) bool { return !math.IsNaN(value(before)) })
	paused := open1(t, o, temperature)
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	newest := func() cell {
		cells := make([]cell, 1)
		s := newScratch(1)
		defer s.free()
		if err := paused.session.engine.latest([]entity{{kindGPU, 0}}, []uint16{1002}, s, cells); err != nil {
			t.Fatal(err)
		}
		return cells[0]
	}
	first := newest()
	time.Sleep(2500 * time.Millisecond) // two of the engine's intervals
	if second := newest(); second.status == statusOK && second.micros != first.micros {
		t.Errorf("the engine goes on reading profiling fields: %+v, then %+v", first, second)
	}
	after := open1(t, o, temperature, profiling)
	after.until(t, 0, "a profiling value again", 10*time.Second, func(error) bool { return !math.IsNaN(value(after)) })
}
