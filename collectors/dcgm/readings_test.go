//go:build linux && cgo

package dcgm

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

const (
	temperature = "DCGM_FI_DEV_GPU_TEMP"    // 150, int
	power       = "DCGM_FI_DEV_POWER_USAGE" // 155, double
	energy      = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
)

func same(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

// TestValues: what DCGM has is what the row has, and what is no value is NaN.
func TestValues(t *testing.T) {
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 2})
	c := open1(t, remote(e), temperature, power)
	g := dcgmtest.GPU(1)
	f := func(name string, field int, v dcgmtest.Value, want float64) {
		t.Helper()
		before := map[string]int{temperature: 150, power: 155}
		e.Set(g, field, v)
		c.mustSample(t)
		for n, id := range before {
			got, _ := c.value(t, nvmltest.UUID(1), n)
			if id == field && !same(got, want) {
				t.Errorf("%s: got %v, want %v", name, got, want)
			}
			if id != field && math.IsNaN(got) {
				t.Errorf("%s: %s is gone, too", name, n)
			}
		}
		if got, _ := c.value(t, nvmltest.UUID(0), temperature); got != 41 {
			t.Errorf("%s: temperature of the other GPU is %v, want 41", name, got)
		}
		e.Unset(g, field)
	}
	nan := math.NaN()
	f("zero", 150, dcgmtest.Number(0), 0)
	f("negative", 150, dcgmtest.Number(-12), -12)
	f("2^53", 150, dcgmtest.Number(1<<53), 1<<53)
	f("as large as a blank of 32 bits", 150, dcgmtest.Number(0x7ffffff0), 0x7ffffff0)
	f("as large as a blank double", 150, dcgmtest.Number(140737488355328), 140737488355328)
	f("double", 155, dcgmtest.Number(351.25), 351.25)
	f("just below the blanks", 155, dcgmtest.Number(140737488355327), 140737488355327)
	for blank, name := range []string{"null", "not found", "not supported", "not permitted"} {
		f("int "+name, 150, dcgmtest.Blank(blank), nan)
		f("double "+name, 155, dcgmtest.Blank(blank), nan)
	}
	for _, code := range []int{-1, -3, -6, -8, -11, -13, -14, -15, -16, -17, -22, -31, -33, -36, -54, -57} {
		f(fmt.Sprintf("int with status %d", code), 150, dcgmtest.Status(code), nan)
		f(fmt.Sprintf("double with status %d", code), 155, dcgmtest.Status(code), nan)
	}
	f("left out of the reply", 150, dcgmtest.Omitted(), nan)
	f("left out of the reply", 155, dcgmtest.Omitted(), nan)
}

// numbered are lines of script that give each field of each GPU another value.
func numbered(gpus int, fields []field.ID) (lines []string) {
	for i := range gpus {
		for j, f := range fields {
			lines = append(lines, fmt.Sprintf("value 1 %d %d num %d", i, f, 1000*i+j))
		}
	}
	return lines
}

// TestOrder: each value gets to its cell, in whatever order and in however
// many replies.
func TestOrder(t *testing.T) {
	names, ids := gpuFields(60)
	for _, far := range []bool{true, false} {
		for _, reverse := range []bool{false, true} {
			e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 8, Lines: numbered(8, ids)})
			e.Reverse(reverse)
			o := embedded(e)
			if far {
				o = remote(e)
			}
			c := open1(t, o, names...)
			e.ResetCalls()
			c.mustSample(t)
			for i := range 8 {
				for j, n := range names {
					if v, ok := c.value(t, nvmltest.UUID(i), n); v != float64(1000*i+j) {
						t.Fatalf("far %v, reverse %v: GPU %d, %s: %v (%v), want %v", far, reverse, i, n, v, ok, 1000*i+j)
					}
				}
			}
			want, room := 1, valuesPerCall
			if far {
				want, room = 3, valuesPerRemoteCall // 3 GPUs of 60 fields fit into 200
			}
			if n, most := e.Calls("dcgmEntitiesGetLatestValues"), e.MostValues(); n != want || most > room {
				t.Errorf("far %v: %d calls of at most %d values, want %d of %d", far, n, most, want, room)
			}
		}
	}
}

// gpuFields are numbers that a GPU has, in ones that are read at each tick.
func gpuFields(n int) (names []string, ids []field.ID) {
	for _, d := range field.All() {
		if len(names) < n && askable(d) && d.Of == 0 && d.Level == field.GPU && d.Cost == field.EachTick {
			names, ids = append(names, d.Name), append(ids, d.ID)
		}
	}
	return names, ids
}

// everything are all numbers that DCGM has.
func everything() (names []string) {
	for _, d := range field.All() {
		if askable(d) && d.Of == 0 && d.ID < field.FirstExporter {
			names = append(names, d.Name)
		}
	}
	return names
}

// TestEverything: all fields of a whole DGX, more than a group can hold, at no
// allocation a tick.
func TestEverything(t *testing.T) {
	e := simulate(t, dcgmtest.Config{GPUs: 4})
	c := open1(t, remote(e), everything()...)
	n := 0
	for _, s := range c.sources {
		n += len(s.Columns())
	}
	if n < 4*300 {
		t.Errorf("only %d columns", n)
	}
	c.mustSample(t)
	for i, s := range c.sources {
		for j, col := range s.Columns() {
			if math.IsNaN(c.row[i][j]) && col.Field != field.XIDErrors { // there was none
				t.Fatalf("source %d: field %d of %s has no value", i, col.Field, s.Devices()[col.Device].ID)
			}
		}
		if raceEnabled {
			continue
		}
		if got := testing.AllocsPerRun(20, func() {
			if err := s.Sample(c.row[i], c.due[i]); err != nil {
				t.Error(err)
			}
		}); got != 0 {
			t.Errorf("source %d: %v allocations a sample of %d columns", i, got, len(s.Columns()))
		}
	}
}

// TestNotDue: a cell that is not due keeps its value, and what is due seldom is
// asked for seldom.
func TestNotDue(t *testing.T) {
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
	c := open1(t, remote(e), temperature, power, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL")
	c.mustSample(t)
	slow, _ := field.ByID(311)
	if slow.Cost == field.EachTick {
		t.Fatalf("%s is read at each tick: choose another field", slow.Name)
	}
	columns := c.sources[0].Columns()
	for i, col := range columns {
		c.due[0][i] = col.Field == 150
		c.row[0][i] = -7
	}
	e.Set(dcgmtest.GPU(0), 150, dcgmtest.Number(99))
	e.ResetCalls()
	eventually.True(t, "the next value", func() bool {
		if err := c.sources[0].Sample(c.row[0], c.due[0]); err != nil {
			t.Fatal(err)
		}
		return c.row[0][slices.IndexFunc(columns, func(x collector.Column) bool { return x.Field == 150 })] == 99
	})
	for i, col := range columns {
		if col.Field != 150 && c.row[0][i] != -7 {
			t.Errorf("field %d is not due and became %v", col.Field, c.row[0][i])
		}
	}
	if e.MostValues() != 2 {
		t.Errorf("asked for %d values in one call, want the 2 of the due block", e.MostValues())
	}
}

// TestRefusedFields: what the engine refuses costs nothing but itself, is said once
// and leaves nothing behind.
func TestRefusedFields(t *testing.T) {
	names, ids := gpuFields(40)
	f := func(name string, prepare func(*dcgmtest.Engine), gone ...string) {
		t.Helper()
		e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 2})
		prepare(e)
		c := open1(t, remote(e), append(slices.Clone(names), "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE")...)
		c.mustSample(t)
		for _, n := range append(slices.Clone(names), "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE") {
			if v, ok := c.value(t, nvmltest.UUID(1), n); ok == slices.Contains(gone, n) || ok && math.IsNaN(v) {
				t.Errorf("%s: %s is %v (%v)", name, n, v, ok)
			}
		}
		want := 2 // one of the profiling fields
		if slices.Contains(gone, "DCGM_FI_PROF_GR_ENGINE_ACTIVE") {
			want = 1
		}
		if n := e.Counts(); n.Groups != want || n.FieldGroups != want || n.Watches != want {
			t.Errorf("%s: %+v, want %d watches", name, n, want)
		}
		lines := c.logs.FilterMessageSnippet("does not offer").All()
		if len(gone) > 0 && len(lines) != 1 || len(gone) == 0 && len(lines) != 0 {
			t.Errorf("%s: logged %v", name, lines)
		}
		for _, n := range gone {
			if len(lines) == 1 && !slices.Contains(strings.Fields(lines[0].ContextMap()["field"].(string)), n) {
				t.Errorf("%s: %v does not name %s", name, lines, n)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(dcgmtest.Counts{Inits: 1}, e.Counts()); diff != "" {
			t.Errorf("%s: left over (-want +got):\n%s", name, diff)
		}
	}
	f("none", func(*dcgmtest.Engine) {})
	f("one", func(e *dcgmtest.Engine) { e.Refuse(dcgmtest.All(dcgmtest.KindGPU), int(ids[7]), -6) }, names[7])
	f("three", func(e *dcgmtest.Engine) {
		for _, i := range []int{0, 20, 39} {
			e.Refuse(dcgmtest.All(dcgmtest.KindGPU), int(ids[i]), -6)
		}
	}, names[0], names[20], names[39])
	f("unknown", func(e *dcgmtest.Engine) { e.Forget(int(ids[3])) }, names[3])
	f("profiling without its module", func(e *dcgmtest.Engine) { e.RefuseProfiling(-33) }, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE")
	f("profiling on a GPU without", func(e *dcgmtest.Engine) { e.RefuseProfiling(-36) }, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE")
}

// TestGroupsOfOthers: if other clients have taken all groups, Open says so.
func TestGroupsOfOthers(t *testing.T) {
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
	e.OtherGroups(64)
	_, err := openAs(t, remote(e), temperature)
	if err == nil || !strings.Contains(err.Error(), "a limit of the host engine is reached") {
		t.Errorf("got %v", err)
	}
	if e.Trouble() == nil {
		t.Error("the limit was not run into")
	}
}

// TestStalled: values whose time stamps do not move are reported, with their age,
// for the GPU whose they are and no other.
func TestStalled(t *testing.T) {
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 3})
	o := remote(e)
	o.Interval, o.SlowInterval = time.Microsecond, 30*time.Second
	c := open1(t, o, temperature, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL")
	r := c.readings(0)
	clock := time.Now()
	r.now = func() time.Time { return clock }
	c.mustSample(t)
	stalled := func() (out []int) {
		t.Helper()
		err := c.sample(0)
		for d := range 3 {
			if e := deviceError(err, d); e != nil {
				if !errors.Is(e, collector.ErrStalled) {
					t.Errorf("device %d: %v", d, e)
				}
				out = append(out, d)
			}
		}
		return out
	}
	e.Freeze(dcgmtest.GPU(1))
	stalled() // what it had at last
	clock = clock.Add(2 * time.Second)
	if got := stalled(); got != nil {
		t.Errorf("stalled after 2 s: %v", got)
	}
	clock = clock.Add(58 * time.Second)
	if got := stalled(); !slices.Equal(got, []int{1}) {
		t.Errorf("stalled after a minute: %v, want 1", got)
	}
	if err := deviceError(c.sample(0), 1); err == nil || !strings.Contains(err.Error(), "no new value for 1m0s") {
		t.Errorf("the error is %v", err)
	}
	// A block that is read seldom is older, and must not look like a change.
	for i, col := range c.sources[0].Columns() {
		c.due[0][i] = col.Field != 150
	}
	stalled()
	for i := range c.due[0] {
		c.due[0][i] = true
	}
	if got := stalled(); !slices.Equal(got, []int{1}) {
		t.Errorf("stalled after the slow block was read alone: %v, want 1", got)
	}
	e.Freeze(dcgmtest.Everything())
	stalled()
	clock = clock.Add(time.Minute)
	if got := stalled(); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("stalled with all frozen: %v", got)
	}
	e.Thaw(dcgmtest.Everything())
	e.Thaw(dcgmtest.GPU(1))
	for range 3 { // an interval of the engine's is a microsecond here, and half of the patience 1.5 s
		if got := stalled(); !slices.Equal(got, []int{0, 1, 2}) {
			t.Errorf("stalled when all have just begun to move again: %v", got)
		}
		clock = clock.Add(time.Second / 2)
	}
	if got := stalled(); got != nil {
		t.Errorf("stalled when all have moved for a while: %v", got)
	}
}

// TestFreshness: a device that stalled is fresh again when it has moved all through half
// of its patience. One poll now and then does not end a stall.
func TestFreshness(t *testing.T) {
	begin := time.Unix(1000, 0)
	f := newFreshness(time.Second, begin) // patience 4 s
	at := 0.0
	step := func(seconds float64, moved, wantStalled bool) {
		t.Helper()
		at += seconds
		now := begin.Add(time.Duration(at * float64(time.Second)))
		f.see(moved, now)
		if err := f.verdict(now); errors.Is(err, collector.ErrStalled) != wantStalled {
			t.Errorf("after %v s: %v, want stalled: %v", at, err, wantStalled)
		}
	}
	step(1, false, true) // nothing yet
	step(9, false, true)
	step(1, true, false) // the first poll was slow
	for range 3 {
		step(1, true, false)
	}
	step(4, false, false)
	step(1, false, true)
	for range 3 { // a GPU that takes 10 s for a poll
		step(9, false, true)
		step(1, true, true)
	}
	step(1, true, true)
	step(1, true, false)
	step(1, true, false)
	step(5, false, true)
	step(30, true, true) // sampled seldom while it fails
	step(30, true, false)
}

// TestNodeFieldIsNoLife: time stamps of a field of the node do not keep a GPU fresh.
func TestNodeFieldIsNoLife(t *testing.T) {
	const node = "DCGM_FI_DEV_COUNT"
	if d, _, ok := field.ByName(node); !ok || d.Level != field.Global {
		t.Fatalf("%s is no field of the node: %+v", node, d)
	}
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
	c := open1(t, remote(e), temperature, node)
	c.mustSample(t)
	r := c.readings(0)
	d := &r.devices[0]
	for _, b := range r.blocks {
		for i, f := range b.fields {
			if field.ID(f) != 4 { // DCGM_FI_DEV_COUNT
				b.cells[i].micros = 1
			} else {
				b.cells[i].micros = 1 << 50
			}
		}
		b.newest[0], d.moved = 1, false
		r.take(b, c.row[0], c.due[0])
	}
	if d.moved {
		t.Error("the device moved by a field of the node")
	}
}

// deviceError is what an error of Sample says of a device.
func deviceError(err error, device int) error {
	var d *collector.DeviceError
	switch many := err.(type) { //nolint:errorlint // errors.Join gives no other way to its parts
	case interface{ Unwrap() []error }:
		for _, e := range many.Unwrap() {
			if found := deviceError(e, device); found != nil {
				return found
			}
		}
	default:
		if errors.As(err, &d) && d.Device == device {
			return d
		}
	}
	return nil
}

// TestFirstValue: until the engine has read something there is no value, never 0.
func TestFirstValue(t *testing.T) {
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
	e.FirstValue(time.Hour)
	c := open1(t, remote(e), temperature)
	r := c.readings(0)
	clock := time.Now()
	r.now = func() time.Time { return clock }
	err := c.sample(0)
	if v, _ := c.value(t, nvmltest.UUID(0), temperature); !math.IsNaN(v) || !errors.Is(err, errStarting) {
		t.Errorf("before the first value: %v, %v", v, err)
	}
	clock = clock.Add(time.Minute)
	if err := c.sample(0); errors.Is(err, errStarting) || !errors.Is(err, collector.ErrStalled) {
		t.Errorf("a minute without any value: %v", err)
	}
}

// TestLost: a GPU that DCGM says is lost is lost; the others are not.
func TestLost(t *testing.T) {
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 3})
	c := open1(t, remote(e), temperature, power)
	e.Lose(1)
	err := c.sample(0)
	for d := range 3 {
		if got := errors.Is(deviceError(err, d), collector.ErrDeviceLost); got != (d == 1) {
			t.Errorf("device %d: %v", d, deviceError(err, d))
		}
	}
	if v, _ := c.value(t, nvmltest.UUID(2), temperature); v != 43 {
		t.Errorf("temperature of GPU 2 is %v, want 43", v)
	}
}

// TestLicence: the engine has the licence under a GPU, though it counts the field
// among those of virtual GPUs, whose others it is not asked for.
func TestLicence(t *testing.T) {
	const status, others = "DCGM_FI_DEV_VGPU_LICENSE_STATUS", "DCGM_FI_DEV_VGPU_MEMORY_USAGE"
	e := simulate(t, dcgmtest.Config{GPUs: 1})
	e.Set(dcgmtest.GPU(0), int(licensed), dcgmtest.Number(1))
	c := open1(t, remote(e), status, others)
	c.mustSample(t)
	if v, ok := c.value(t, nvmltest.UUID(0), status); !ok || v != 1 {
		t.Errorf("%s is %v (%v), want 1", status, v, ok)
	}
	if v, ok := c.value(t, nvmltest.UUID(0), others); ok {
		t.Errorf("%s of a GPU is %v", others, v)
	}
}

// TestFreezeHolds is of the simulation: what is frozen does not go back to when it
// was asked to, and stays while other things change.
func TestFreezeHolds(t *testing.T) {
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
	o := remote(e)
	o.Interval = 10 * time.Millisecond
	e.Set(dcgmtest.GPU(0), 156, dcgmtest.Ramp(0, 1e6))
	c := open1(t, o, energy)
	value := func() float64 {
		c.mustSample(t)
		v, _ := c.value(t, nvmltest.UUID(0), energy)
		return v
	}
	first := value()
	eventually.True(t, "a value that grows", func() bool { return value() > first })
	before := value()
	e.FreezeAt(dcgmtest.GPU(0), time.Now().Add(-time.Hour))
	held := value()
	if held < before {
		t.Errorf("frozen at %v, after %v", held, before)
	}
	for n := range 50 {
		e.Set(dcgmtest.GPU(0), 150, dcgmtest.Number(float64(n)))
		time.Sleep(time.Millisecond) // what moved would have by then
		if v := value(); v != held {
			t.Fatalf("frozen at %v, and then %v", held, v)
		}
	}
	e.Thaw(dcgmtest.GPU(0))
	eventually.True(t, "a value that grows again", func() bool { return value() > held })
}
