//go:build linux && cgo

package dcgm

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/collectors/nvml/nvmltest"
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
