//go:build linux && cgo

package dcgm

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit"
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

// numbered returns script lines that give each field of each GPU a different value.
func numbered(gpus int, fields []field.ID) (lines []string) {
	for i := range gpus {
		for j, f := range fields {
			lines = append(lines, fmt.Sprintf("value 1 %d %d num %d", i, f, 1000*i+j))
		}
	}
	return lines
}

// TestOrder checks that each value reaches its cell, whatever the order and the number of replies.
func TestOrder(t *testing.T) {
	names, ids := gpuFields(60)
	for _, far := range []bool{true, false} {
		for _, reverse := range []bool{false, true} {
			e := dcgmtest.New(t, dcgmtest.Config{Preset: "pcie", GPUs: 8, Lines: numbered(8, ids)})
			e.Behave("order", map[bool]int{true: 1}[reverse])
			o := embedded(e)
			if far {
				o = remote(e)
			}
			c := open1(t, o, names...)
			e.ResetCalls()
			c.mustSample(t)
			for i := range 8 {
				for j, n := range names {
					v, ok := c.value(t, nvmltest.UUID(i), n)
					testkit.FatalIf(t, v != float64(1000*i+j), "far %v, reverse %v: GPU %d, %s: %v (%v), want %v", far, reverse, i, n, v, ok, 1000*i+j)
				}
			}
			want, room := 1, valuesPerCall
			if far {
				want, room = 2, valuesPerRemoteCall // 6 GPUs with 60 fields fit into 400
			}
			n, most := e.Calls("dcgmEntitiesGetLatestValues"), e.MostValues()
			testkit.ErrorIf(t, n != want || most > room, "far %v: %d calls of at most %d values, want %d of %d", far, n, most, want, room)
		}
	}
}

// gpuFields returns n numeric GPU fields that are read on every tick.
func gpuFields(n int) (names []string, ids []field.ID) {
	for _, d := range field.All() {
		if len(names) < n && askable(d) && d.Of == 0 && d.Level == field.GPU && d.Cost == field.EachTick {
			names, ids = append(names, d.Name), append(ids, d.ID)
		}
	}
	return names, ids
}

// everything returns all numeric fields of DCGM.
func everything() (names []string) {
	for _, d := range field.All() {
		if askable(d) && d.Of == 0 && d.ID < field.FirstExporter {
			names = append(names, d.Name)
		}
	}
	return names
}

// TestRefusedFields checks that a refused field costs no other field, has a reason and leaves nothing behind.
func TestRefusedFields(t *testing.T) {
	names, ids := gpuFields(40)
	profiling := []string{"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE"}
	names = append(names, profiling...)
	f := func(prepare func(*dcgmtest.Engine), gone ...string) {
		t.Helper()
		e := dcgmtest.New(t, dcgmtest.Config{Preset: "pcie", GPUs: 2})
		prepare(e)
		c := open1(t, remote(e), names...)
		c.mustSample(t)
		for _, n := range names {
			v, ok := c.value(t, nvmltest.UUID(1), n)
			testkit.ErrorIf(t, ok == slices.Contains(gone, n) || ok && math.IsNaN(v), "without %q: %s is %v (%v)", gone, n, v, ok)
		}
		want := 2 // one of the profiling fields
		if slices.Contains(gone, profiling[0]) {
			want = 1
		}
		n := e.Counts()
		testkit.ErrorIf(t, n.Groups != want || n.FieldGroups != want || n.Watches != want, "without %q: %+v, want %d watches", gone, n, want)
		explained := map[string]bool{}
		for _, a := range c.sources[0].(collector.Explainer).Absent() {
			d, _ := field.ByID(a.Field)
			explained[d.Name] = true
		}
		testkit.Equal(t, "the reasons are of", slices.Sorted(slices.Values(gone)), slices.Sorted(maps.Keys(explained)))
		must(t, c.Close())
		testkit.Equal(t, fmt.Sprintf("without %q: left over", gone), dcgmtest.Counts{Inits: 1}, e.Counts())
	}
	f(func(*dcgmtest.Engine) {})
	f(func(e *dcgmtest.Engine) {
		for _, i := range []int{0, 20, 39} {
			e.Refuse(dcgmtest.All(dcgmtest.KindGPU), int(ids[i]), -6)
		}
	}, names[0], names[20], names[39])
	f(func(e *dcgmtest.Engine) { e.Forget(int(ids[3])) }, names[3])
	f(func(e *dcgmtest.Engine) { e.Behave("profiling", -33) }, profiling...)
}

// deviceError returns the part of a Sample error that concerns a device.
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

// TestValuesChange checks that a blank of the driver costs one value of one GPU. TestReasons has each blank and number.
func TestValuesChange(t *testing.T) {
	onBoth(t, hardware{gpus: 2}, func(t *testing.T, m machine) {
		for gpu := range 2 {
			for _, name := range settableNames {
				m.set(gpu, name, 40)
			}
		}
		c := started(t, m, settableNames...)
		for i, name := range settableNames[:3] {
			m.blank(1, name, []int{dcgmtest.Null, dcgmtest.NotFound, dcgmtest.NotPermitted}[i])
			c.untilValue(t, nvmltest.UUID(1), name, math.NaN())
			for _, other := range settableNames {
				for gpu := range 2 {
					v, _ := c.value(t, nvmltest.UUID(gpu), other)
					testkit.ErrorIf(t, (other != name || gpu != 1) && v != 40, "%s of GPU 1 is blank, and %s of GPU %d is %v, want 40", name, other, gpu, v)
				}
			}
			m.set(1, name, 40)
			c.untilValue(t, nvmltest.UUID(1), name, 40)
		}
	})
}

// TestDriverHangs checks that frozen values are reported although the engine keeps answering, and that all recovers when
// the driver's calls return.
func TestDriverHangs(t *testing.T) {
	onAll(t, hardware{gpus: 3}, func(t *testing.T, m machine) {
		c := started(t, m, temperature, power, peersName, healthName)
		if m.simulation() != nil { // the simulation freezes at once
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

// TestReasons checks the reason of each of DCGM's blanks and statuses, for each type of field.
func TestReasons(t *testing.T) {
	const clock = "DCGM_FI_DEV_SM_CLOCK"
	e := dcgmtest.New(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
	c := open1(t, remote(e), temperature, clock, power, "nvidia_gpu_jpeg_busy_ratio", "amd_gpu_voltage_volts", "DCGM_EXP_P2P_STATUS")
	f := func(name string, v dcgmtest.Value, want string) {
		t.Helper()
		d, _, _ := field.ByName(name)
		e.Set(dcgmtest.GPU(0), int(d.ID), v)
		c.mustSample(t)
		s, device := c.device(t, nvmltest.UUID(0))
		got := collectortest.ReasonOf(t, c.sources[s], c.row[s], device, name)
		testkit.ErrorIf(t, !strings.HasPrefix(got, want) || want == "" && got != "", "%s of %+v: %q, want %q", name, v, got, want)
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
		got := collectortest.ReasonOf(t, c.sources[s], c.row[s], device, name)
		testkit.ErrorIf(t, !strings.HasPrefix(got, want), "%s: %q, want %q", name, got, want)
	}
}

// TestRefusals checks that Open skips a field only if the engine does not know or support it. Any other refusal makes Open
// fail, and so does an engine that offers no field or has no GPU.
func TestRefusals(t *testing.T) {
	for code, leftOut := range map[int]bool{-6: true, -13: true, -17: true, -36: true, -3: false, -24: false, -26: false, -34: false, -54: false} {
		e := dcgmtest.New(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
		e.Refuse(dcgmtest.All(dcgmtest.KindGPU), 150, code)
		_, err := openAs(t, remote(e), temperature, power)
		testkit.ErrorIf(t, leftOut != (err == nil), "code %d: %v, want an error: %v", code, err, !leftOut)
		if _, err := openAs(t, remote(e), temperature); errors.Is(err, collector.ErrNothingToRead) != leftOut || err == nil {
			t.Errorf("code %d for the only field: %v, want %v: %v", code, err, collector.ErrNothingToRead, leftOut)
		}
		n := e.Counts().Connections
		testkit.ErrorIf(t, leftOut && n != 1 || !leftOut && n != 0, "code %d: %d connections", code, n)
	}
	e := dcgmtest.New(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
	_, err := openAs(t, remote(e), "DCGM_FI_DEV_CPU_UTIL_TOTAL")
	testkit.ErrorIf(t, !errors.Is(err, collector.ErrNothingToRead), "a list for CPUs on a node without: %v", err)
	e.Remove(dcgmtest.GPU(0))
	_, err = openAs(t, remote(e), temperature)
	testkit.ErrorIf(t, !errors.Is(err, collector.ErrNoDevices), "an engine without GPUs: %v, want %v", err, collector.ErrNoDevices)
	nothingLeft(t, &simulated{Engine: e})
}

// TestStarting checks that Sample fails and events wait until the profiling fields have their first values, which come
// after the others, and that this wait ends.
func TestStarting(t *testing.T) {
	const profiling = "DCGM_FI_PROF_SM_ACTIVE"
	e := dcgmtest.New(t, dcgmtest.Config{GPUs: 1})
	e.Set(dcgmtest.GPU(0), 1002, dcgmtest.Blank(dcgmtest.NotFound))
	for _, late := range []bool{true, false} {
		c := open1(t, remote(e), temperature, profiling, xidCount)
		e.XID(0, 13)
		r := c.readings(0)
		clock := time.Now()
		r.now = func() time.Time { return clock }
		for range 2 {
			err := c.sample(0)
			testkit.ErrorIf(t, !errors.Is(err, errStarting), "before the first value: %v", err)
		}
		if late {
			e.Unset(dcgmtest.GPU(0), 1002)
		} else {
			clock = clock.Add(startPatience)
		}
		err := c.sample(0)
		testkit.ErrorIf(t, errors.Is(err, errStarting), "still starting: %v", err)
		got := c.cellsOf(field.XIDEvent, 0, "slot")
		testkit.ErrorIf(t, got["0"] != " 13", "XIDs in the first row: %v", got)
		testkit.Equal(t, "profiling value", late, c.has(t, c.sources[0].Devices()[0].ID, profiling))
		e.Set(dcgmtest.GPU(0), 1002, dcgmtest.Blank(dcgmtest.NotFound))
		err = c.sample(0)
		testkit.ErrorIf(t, late && err != nil, "a blank later on: %v", err)
		must(t, c.Close())
	}
}
