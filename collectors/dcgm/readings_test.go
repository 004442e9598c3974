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
	"warpgauge/internal/testkit/race"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/field"
)

const (
	temperature = "DCGM_FI_DEV_GPU_TEMP"    // 150, int
	power       = "DCGM_FI_DEV_POWER_USAGE" // 155, double
	energy      = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
)

func same(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

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
		for _, src := range c.sources {
			var explained []string
			for _, a := range src.(collector.Explainer).Absent() {
				if d, ok := field.ByID(a.Field); ok && !slices.Contains(explained, d.Name) {
					explained = append(explained, d.Name)
				}
			}
			slices.Sort(explained)
			if want := slices.Sorted(slices.Values(gone)); !slices.Equal(explained, want) {
				t.Errorf("%s: the reasons are of %q, want %q", name, explained, want)
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

// TestLicence: the engine has the licence under a GPU, though it counts the field
// among those of virtual GPUs, whose others it is not asked for.
func TestLicence(t *testing.T) {
	const status, others = "DCGM_FI_DEV_VGPU_LICENSE_STATUS", "DCGM_FI_DEV_VGPU_MEMORY_USAGE"
	e := simulate(t, dcgmtest.Config{GPUs: 1})
	e.Set(dcgmtest.GPU(0), int(field.VGPULicence), dcgmtest.Number(1))
	c := open1(t, remote(e), status, others)
	c.mustSample(t)
	if v, ok := c.value(t, nvmltest.UUID(0), status); !ok || v != 1 {
		t.Errorf("%s is %v (%v), want 1", status, v, ok)
	}
	if v, ok := c.value(t, nvmltest.UUID(0), others); ok {
		t.Errorf("%s of a GPU is %v", others, v)
	}
}

// TestValuesOfEach: each value comes where it belongs, by each way to an engine.
func TestValuesOfEach(t *testing.T) {
	for name, h := range map[string]hardware{"host engine": {gpus: 8}, "TCP": {gpus: 8, tcp: true}, "embedded": {gpus: 8, embedded: true}} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, h, func(t *testing.T, m machine) {
				value := func(gpu, i int) float64 { return float64(1 + 10*i + gpu) }
				for gpu := range 8 {
					for i, name := range settableNames {
						m.set(gpu, name, value(gpu, i))
					}
				}
				c := started(t, m, settableNames...)
				for gpu := range 8 {
					for i, name := range settableNames {
						c.untilValue(t, nvmltest.UUID(gpu), name, value(gpu, i))
					}
				}
			})
		})
	}
}

// TestValuesChange: a number is what it is, none of it a blank, and what the driver
// does not have is absent, for whatever reason; the others stay.
func TestValuesChange(t *testing.T) {
	onBoth(t, hardware{gpus: 2}, func(t *testing.T, m machine) {
		for gpu := range 2 {
			for _, name := range settableNames {
				m.set(gpu, name, 40)
			}
		}
		c := started(t, m, settableNames...)
		id := nvmltest.UUID(1)
		others := func(but, when string) {
			t.Helper()
			for _, name := range settableNames {
				if v, _ := c.value(t, id, name); name != but && v != 40 {
					t.Errorf("%s: %s is %v, want 40", when, name, v)
				}
			}
			if v, _ := c.value(t, nvmltest.UUID(0), temperature); v != 40 {
				t.Errorf("%s: the temperature of the other GPU is %v, want 40", when, v)
			}
		}
		for _, name := range settableNames {
			c.untilValue(t, id, name, 40)
		}
		f := func(name string, v float64) {
			t.Helper()
			m.set(1, name, v)
			c.untilValue(t, id, name, v)
			others(name, name)
			m.set(1, name, 40)
			c.untilValue(t, id, name, 40)
		}
		f(temperature, 0)
		f(power, 0)
		f(power, 351.25)
		f(energy, 1<<52)
		f(energy, 0x7ffffff0) // what is a blank in 32 bits
		names := []string{temperature, power, energy}
		for _, name := range names {
			for _, why := range []int{dcgmtest.Null, dcgmtest.NotFound, dcgmtest.NotPermitted} {
				m.blank(1, name, why)
				c.untilValue(t, id, name, math.NaN())
				others(name, fmt.Sprintf("blank %d", why))
				m.set(1, name, 40)
				c.untilValue(t, id, name, 40)
			}
		}
		for _, name := range names { // an engine may never ask for it again
			m.blank(1, name, dcgmtest.NotSupported)
			c.untilValue(t, id, name, math.NaN())
		}
		if v, _ := c.value(t, nvmltest.UUID(0), temperature); v != 40 {
			t.Errorf("the temperature of the other GPU is %v, want 40", v)
		}
	})
}

// TestNotDueStays: a cell that is not due keeps what it has, and what is due seldom is
// asked for seldom.
func TestNotDueStays(t *testing.T) {
	onBoth(t, hardware{gpus: 2}, func(t *testing.T, m machine) {
		c := started(t, m, temperature, power, energy, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL")
		const kept = -7
		columns := c.sources[0].Columns()
		for i, col := range columns {
			c.due[0][i], c.row[0][i] = col.Field == 150, kept
		}
		if e := m.simulation(); e != nil {
			e.ResetCalls()
		}
		if err := c.sources[0].Sample(c.row[0], c.due[0]); err != nil {
			t.Fatal(err)
		}
		for i, col := range columns {
			if due := col.Field == 150; due == (c.row[0][i] == kept) {
				t.Errorf("field %d, due %v, became %v", col.Field, due, c.row[0][i])
			}
		}
		if e := m.simulation(); e != nil && e.MostValues() != 2*3 {
			t.Errorf("asked for %d values in one call, want the 3 fields of 2 GPUs that are read as often as the due one", e.MostValues())
		}
	})
}

// TestEveryField: all that a list can ask for is more than an engine takes in one
// group, of profiling and of the rest; and costs no memory.
func TestEveryField(t *testing.T) {
	onAll(t, hardware{gpus: 4}, func(t *testing.T, m machine) {
		c := started(t, m, everything()...)
		columns := 0
		for _, s := range c.sources {
			columns += len(s.Columns())
		}
		if columns < 4*300 {
			t.Errorf("only %d columns", columns)
		}
		id := nvmltest.UUID(3)
		c.until(t, 0, "values of all kinds", func(err error) bool {
			return err == nil && c.has(t, id, temperature) && c.has(t, id, power) && c.has(t, id, "DCGM_FI_PROF_SM_ACTIVE") && c.has(t, id, "DCGM_FI_PROF_PCIE_RX_BYTES")
		})
		for i, s := range c.sources {
			for j, col := range s.Columns() {
				d, _ := field.ByID(col.Field)
				v := c.row[i][j]
				if m.simulation() != nil && math.IsNaN(v) && !d.Event {
					t.Fatalf("%s of %s has no value", d.Name, s.Devices()[col.Device].ID)
				}
				if !d.Event && (v < d.Min || v > d.Max) {
					t.Errorf("%s of %s is %v, outside of [%v, %v]", d.Name, s.Devices()[col.Device].ID, v, d.Min, d.Max)
				}
			}
			if race.Enabled {
				continue
			}
			if n := testing.AllocsPerRun(10, func() { _ = s.Sample(c.row[i], c.due[i]) }); n != 0 {
				t.Errorf("source %d: %v allocations a sample of %d columns", i, n, len(s.Columns()))
			}
		}
	})
}

// TestDriverHangs: values that do not move are reported, whatever the engine continues to
// answer with; when the driver's calls return, all is well.
func TestDriverHangs(t *testing.T) {
	onAll(t, hardware{gpus: 3}, func(t *testing.T, m machine) {
		c := started(t, m, temperature, power, peersName, healthName)
		if m.simulation() != nil { // it needs no patience
			begin := time.Now()
			c.readings(0).now = func() time.Time { return begin.Add(50 * time.Since(begin)) }
		}
		release := m.hang()
		c.until(t, 0, "all stalled", func(err error) bool {
			for d := range 3 {
				if !errors.Is(deviceError(err, d), collector.ErrStalled) {
					return false
				}
			}
			return true
		})
		release()
		c.until(t, 0, "values again", func(err error) bool { return err == nil })
	})
}

// TestLossAndReturn: a GPU that is gone is lost, also for a rescan if the engine
// lists it no longer; the others stay, and it comes back.
func TestLossAndReturn(t *testing.T) {
	onBoth(t, hardware{gpus: 4}, func(t *testing.T, m machine) {
		c := started(t, m, settableNames...)
		m.lose(2)
		c.until(t, 0, "GPU 2 lost, and no other", func(err error) bool {
			for d := range 4 {
				if errors.Is(deviceError(err, d), collector.ErrDeviceLost) != (d == 2) {
					return false
				}
			}
			return true
		})
		if !c.has(t, nvmltest.UUID(3), temperature) {
			t.Error("GPU 3 has no temperature")
		}
		if changed, err := c.Rescan(t.Context()); err != nil || changed != (m.simulation() == nil) {
			t.Errorf("rescan without GPU 2: %v, %v", changed, err)
		}
		m.restore(2)
		c.until(t, 0, "GPU 2 again", func(err error) bool { return err == nil && c.has(t, nvmltest.UUID(2), temperature) })
	})
}

// TestPause: a list without profiling fields, which is what a pause is, ends that the
// engine reads them, and a list with them begins it again.
func TestPause(t *testing.T) {
	onBoth(t, hardware{gpus: 1}, func(t *testing.T, m machine) {
		const profiling = "DCGM_FI_PROF_SM_ACTIVE"
		id := nvmltest.UUID(0)
		value := func(c *opened) bool { return c.has(t, id, profiling) }
		before := open1(t, m.options(), temperature, profiling)
		before.until(t, 0, "a profiling value", func(error) bool { return value(before) })
		paused := open1(t, m.options(), temperature)
		if err := before.Close(); err != nil {
			t.Fatal(err)
		}
		newest := func(fields ...uint16) []cell { return paused.newest(t, 0, fields...) }
		at := newest(150, 1002)
		polls := map[int64]bool{}
		paused.until(t, 0, "more polls of the engine", func(error) bool {
			polls[newest(150)[0].micros] = true
			return len(polls) > 5
		})
		if now := newest(150, 1002); now[1].status == statusOK && now[1].micros != at[1].micros {
			t.Errorf("the engine continues reading profiling fields: %+v, then %+v", at, now)
		}
		after := open1(t, m.options(), temperature, profiling)
		after.until(t, 0, "a profiling value again", func(error) bool { return value(after) })
	})
}

// TestReasons: each of DCGM's blanks and statuses has its reason, whatever the type of the
// field.
func TestReasons(t *testing.T) {
	const clock = "DCGM_FI_DEV_SM_CLOCK"
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
	c := open1(t, remote(e), temperature, clock, power, "nvidia_gpu_jpeg_busy_ratio", "amd_gpu_voltage_volts", "DCGM_EXP_P2P_STATUS")
	f := func(name string, v dcgmtest.Value, want string) {
		t.Helper()
		d, _, _ := field.ByName(name)
		e.Set(dcgmtest.GPU(0), int(d.ID), v)
		c.mustSample(t)
		s, device := c.device(t, nvmltest.UUID(0))
		if got := collectortest.ReasonOf(t, c.sources[s], c.row[s], device, name); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s of %+v: %q, want %q", name, v, got, want)
		}
	}
	for _, name := range []string{clock, power} { // an integer and a floating point number
		f(name, dcgmtest.Number(7), "")
		f(name, dcgmtest.Blank(dcgmtest.Null), "blank: the host engine has a blank")
		f(name, dcgmtest.Blank(dcgmtest.NotFound), "blank: the host engine has not found it")
		f(name, dcgmtest.Blank(dcgmtest.NotSupported), "unsupported: the host engine says")
		f(name, dcgmtest.Blank(dcgmtest.NotPermitted), "permission: the driver refuses it to the host engine")
		f(name, dcgmtest.Status(-6), "unsupported: the host engine answers: not supported [DCGM -6]")
		f(name, dcgmtest.Status(-17), "permission: the host engine answers: no permission [DCGM -17]")
		f(name, dcgmtest.Status(-54), "blank: the host engine answers: profiling is paused [DCGM -54]")
		f(name, dcgmtest.Status(-33), "unsupported: the host engine answers: module not loaded [DCGM -33]")
		for _, code := range []int{-1, -3, -8, -11, -13, -14, -15, -16, -22, -31, -36, -57} {
			e.Set(dcgmtest.GPU(0), map[string]int{clock: 100, power: 155}[name], dcgmtest.Status(code))
			if c.mustSample(t); c.has(t, nvmltest.UUID(0), name) || !c.has(t, nvmltest.UUID(0), temperature) {
				t.Errorf("%s with status %d has a value, or the temperature has none", name, code)
			}
		}
		f(name, dcgmtest.Omitted(), "not_due: the host engine has not read it yet")
		for _, v := range []float64{0, 8, 0x7ffffff0} { // the last is a blank of 32 bits
			f(name, dcgmtest.Number(v), "")
		}
	}
	f(clock, dcgmtest.Number(140737488355328), "") // a blank double
	f(power, dcgmtest.Number(140737488355327), "") // just below the blanks
	s, device := c.device(t, nvmltest.UUID(0))
	for name, want := range map[string]string{
		"nvidia_gpu_jpeg_busy_ratio": "other_collector: DCGM does not have it, the collector nvml may",
		"amd_gpu_voltage_volts":      "unsupported: only AMD GPUs have it",
		"DCGM_EXP_P2P_STATUS":        "unsupported: there is no other GPU",
	} {
		if got := collectortest.ReasonOf(t, c.sources[s], c.row[s], device, name); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestProfilingManyFields: the engine takes 64 profiling fields and 127 others in a
// group, and refuses more as a whole.
func TestProfilingManyFields(t *testing.T) {
	var all []uint16
	for id := range uint16(300) {
		all = append(all, 1000+id)
	}
	seen := 0
	for _, g := range fieldGroups(all) {
		seen += len(g)
		profiling := 0
		for _, id := range g {
			if profiles(field.ID(id)) {
				profiling++
			}
		}
		if profiling != 0 && profiling != len(g) || profiling > 64 || len(g) > 127 {
			t.Errorf("a group of %d fields, %d of profiling", len(g), profiling)
		}
	}
	if seen != len(all) {
		t.Errorf("%d fields in groups, want %d", seen, len(all))
	}
}

// TestHistoriesHaveEachValueOnce: however the rows fall, their blocks stand for the time up
// to the newest value that was fetched, and no more.
func TestHistoriesHaveEachValueOnce(t *testing.T) {
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 2})
	o := remote(e)
	o.Interval = 10 * time.Millisecond
	c := open1(t, o, temperature, "histogram DCGM_FI_DEV_POWER_USAGE")
	src := c.sources[0].(*source)
	h := src.parts[len(src.parts)-1].(*histories)
	began := h.all[0].buffers[0].Last()
	got := make([]float64, 2) // ms, by GPU
	eventually.OK(t, "values of a tenth of a second", func() error {
		c.mustSample(t)
		for i, col := range src.Columns() {
			if v := c.row[0][i]; col.Buffer > 0 && col.Buffer%2 == 0 && !math.IsNaN(v) {
				got[col.Device] += v
			}
		}
		for gpu, b := range h.all[0].buffers {
			if want := float64(b.Last()-began) / 1000; math.Abs(got[gpu]-want) > 1e-6 {
				t.Fatalf("GPU %d: values stand for %v ms of %v", gpu, got[gpu], want)
			}
			if got[gpu] < 100 {
				return fmt.Errorf("GPU %d: %v ms", gpu, got[gpu])
			}
		}
		return nil
	})
}

// TestHistoriesRefused: an engine that refuses histories costs only them.
func TestHistoriesRefused(t *testing.T) {
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
	c := open1(t, remote(e), "histogram DCGM_FI_DEV_POWER_USAGE")
	e.Return("dcgmGetValuesSince_v2", -3)
	c.mustSample(t)
	for i, col := range c.sources[0].Columns() {
		if v := c.row[0][i]; math.IsNaN(v) != (col.Buffer > 0) {
			t.Errorf("column %+v has %v", col, v)
		}
	}
}
