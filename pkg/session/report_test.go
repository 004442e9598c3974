package session

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

const csv = `
DCGM_FI_DEV_GPU_TEMP, gauge, temperature
DCGM_FI_DEV_SM_CLOCK_HERTZ, gauge, clock
DCGM_FI_DEV_GPU_UTIL, gauge, utilisation
DCGM_FI_DEV_FAN_SPEED, gauge, fan
DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, engine
DCGM_FI_DEV_GPU_TEMP_LIMIT, gauge, margin
DCGM_EXP_XID_ERRORS_COUNT, gauge, XIDs
DCGM_FI_DEV_NVSWITCH_FATAL_ERRORS, gauge, switches
DCGM_FI_DRIVER_VERSION, label, driver
DCGM_FI_DEV_SERIAL, label, serial
`

func parse(t *testing.T, text string) field.List {
	t.Helper()
	list, _, err := field.Parse(strings.NewReader(text), field.ParseOptions{File: "list"})
	must(t, err)
	return list
}

// now is the time of the tests' Reports.
var now = time.Unix(1_800_000_000, 0)

// source makes a source of GPU 0 with the cells as its columns, sampled at a time; zero: never.
func source(name string, list field.List, sampled time.Time, cells []cell) *view.Source {
	s := &view.Source{
		Collector: name, Fields: list, Interval: time.Second,
		Devices: []collector.Device{{ID: "GPU-a", Level: field.GPU, GPU: "0", Facts: []collector.Label{{Name: "DCGM_FI_DRIVER_VERSION", Value: "580"}}}},
	}
	var row []float64
	for _, c := range cells {
		s.Columns = append(s.Columns, collector.Column{Field: c.id, Labels: c.labels})
		row = append(row, c.value)
	}
	s.Ring = ring.New(make([]atomic.Uint64, ring.Words(16, 1, len(row))), 16, 1, len(row))
	if !sampled.IsZero() {
		s.Ring.Append(sampled.UnixNano(), []int64{sampled.UnixNano()}, row)
	}
	return s
}

type cell struct {
	id     field.ID
	value  float64
	labels []collector.Label
}

// told is a Report in words, a line for each field.
func told(r Report) []string {
	var out []string
	line := func(of string, f *ReportField) {
		text := f.Text
		for _, v := range f.Values {
			text += fmt.Sprintf("%v%v ", v.Value, v.Labels)
		}
		if f.Counted {
			text += "counted"
		}
		if f.Absent.Reason != "" {
			text += string(f.Absent.Reason) + ": " + f.Absent.Detail
		}
		out = append(out, of+" "+strings.TrimPrefix(strings.TrimPrefix(f.Name, "DCGM_FI_"), "DEV_")+" = "+strings.TrimSpace(text))
	}
	for i := range r.Devices {
		d := &r.Devices[i]
		for j := range d.Fields {
			line(d.Collector+" "+d.Device.ID, &d.Fields[j])
		}
	}
	for i := range r.Nowhere {
		line("nowhere", &r.Nowhere[i])
	}
	return out
}

func TestValuesAndReasons(t *testing.T) {
	list := parse(t, csv)
	var explained collector.Absences
	second := explained.Blank(collector.ReasonNotDue, "takes two samples")
	s := source("nvml", list, now.Add(-time.Second), []cell{
		{150, 41, nil}, {100, 1980, nil}, {203, collector.Dropped(808e6), nil}, {1001, second, nil}, {field.XIDEvent, math.NaN(), nil},
	})
	explained.Note(0, 191, collector.Explanation{Reason: collector.ReasonUnsupported, Detail: "nvmlDeviceGetFanSpeed: Not Supported"})
	explained.Complete(s.Devices, s.Columns, list.Readings(), func(int, *field.Descriptor) collector.Explanation {
		return collector.Explanation{Reason: collector.ReasonNoSymbol, Detail: "driver 535 lacks nvmlDeviceGetMarginTemperature"}
	})
	s.Explanations, s.Absent = explained.Explanations(), explained.Absent()
	v := &view.View{Sources: []*view.Source{s}}
	up := []CollectorStatus{{Name: "nvml", Up: true, Devices: []DeviceStatus{{Device: s.Devices[0]}}}}
	o := ReportOptions{StaleAfter: 10 * time.Second, Now: now}
	want := []string{
		"nvml GPU-a GPU_TEMP = 41[]",
		"nvml GPU-a SM_CLOCK_HERTZ = 1.98e+09[]",
		"nvml GPU-a GPU_UTIL = implausible: the library says 8.08e+08, which is outside of 0 to 100 %",
		"nvml GPU-a FAN_SPEED = unsupported: nvmlDeviceGetFanSpeed: Not Supported",
		"nvml GPU-a PROF_GR_ENGINE_ACTIVE = not_due: takes two samples",
		"nvml GPU-a GPU_TEMP_LIMIT = no_symbol: driver 535 lacks nvmlDeviceGetMarginTemperature",
		"nvml GPU-a DCGM_EXP_XID_ERRORS_COUNT = counted",
		"nvml GPU-a DRIVER_VERSION = 580",
		"nvml GPU-a SERIAL = blank: the device had no such text when its collector was opened",
		"nowhere NVSWITCH_FATAL_ERRORS = unsupported: no collector in use has a device of the kind switch",
	}
	testkit.Equal(t, "report", want, told(NewReport(v, up, list, o)))

	// In a row that is too old, every value has the device's state as its reason.
	o.Now = now.Add(time.Minute)
	f := func(st DeviceStatus, want string) {
		t.Helper()
		st.Device = s.Devices[0]
		got := told(NewReport(v, []CollectorStatus{{Name: "nvml", Devices: []DeviceStatus{st}}}, list, o))
		if !strings.HasSuffix(got[0], want) || !strings.HasSuffix(got[6], want) {
			t.Errorf("state %v: got %q and %q, want %q", st.State, got[0], got[6], want)
		}
	}
	testkit.Equal(t, "of a stale device", want[3], told(NewReport(v, nil, list, o))[3])
	f(DeviceStatus{LastSample: now}, "device_stalled: the last sample is too old to be shown")
	f(DeviceStatus{State: Lost, Cause: CauseLost, Reason: "fell off"}, "device_lost: fell off")
	f(DeviceStatus{State: Stalled, Cause: CauseHung, Reason: "a call hangs"}, "device_stalled: a call hangs")
	f(DeviceStatus{State: Stalled, Cause: CauseStarting, Reason: "not sampled yet"}, "not_due: the device was not sampled yet")
	f(DeviceStatus{State: Absent, Cause: CauseVanished}, "device_absent: the device is absent")
	f(DeviceStatus{State: Released, Cause: CauseReleased, Reason: "released"}, "released: released")
}

// Two collectors have one GPU: the first fresh one serves it, as on the page.
func TestTwoCollectors(t *testing.T) {
	list := parse(t, "DCGM_FI_DEV_GPU_TEMP, gauge, temperature\nDCGM_FI_DEV_FAN_SPEED, gauge, fan\n")
	status := []CollectorStatus{
		{Name: "dcgm", Devices: []DeviceStatus{{Device: collector.Device{ID: "GPU-a", Level: field.GPU}, State: Lost, Reason: "gone"}}},
		{Name: "nvml", Devices: []DeviceStatus{{Device: collector.Device{ID: "GPU-a", Level: field.GPU}}}},
	}
	f := func(age time.Duration, want ...string) {
		t.Helper()
		first := source("dcgm", list, now.Add(-age), []cell{{150, 40, nil}})
		second := source("nvml", list, now, []cell{{150, 41, nil}, {191, 30, nil}})
		got := told(NewReport(&view.View{Sources: []*view.Source{first, second}}, status, list, ReportOptions{StaleAfter: 10 * time.Second, Now: now}))
		testkit.Equal(t, fmt.Sprintf("age %v: report", age), want, got)
	}
	f(time.Second, "dcgm GPU-a GPU_TEMP = 40[]", "dcgm GPU-a FAN_SPEED = other_collector: the collector nvml has it, and dcgm serves the device")
	f(time.Minute, "nvml GPU-a GPU_TEMP = 41[]", "nvml GPU-a FAN_SPEED = 30[]")
}

func TestWhereAFieldIsReported(t *testing.T) {
	temperature := "DCGM_FI_DEV_GPU_TEMP, gauge, temperature\n"
	gone := DeviceStatus{Device: collector.Device{ID: "GPU-b", Level: field.GPU}, State: Absent, Reason: "no longer found"}
	f := func(what, csv string, sources []*view.Source, devices []DeviceStatus, want string) {
		t.Helper()
		status := []CollectorStatus{{Name: "dcgm", Devices: devices}}
		got := told(NewReport(&view.View{Sources: sources}, status, parse(t, csv), ReportOptions{Now: now, StaleAfter: time.Second}))
		testkit.Equal(t, what, []string{want}, got)
	}
	f("a device without a source, by its state", temperature, nil, []DeviceStatus{gone}, "dcgm GPU-b GPU_TEMP = device_absent: no longer found")
	f("no device", temperature, nil, nil, "nowhere GPU_TEMP = device_absent: no collector in use has a device of the kind gpu")
	switches := "DCGM_FI_DEV_NVSWITCH_FATAL_ERRORS, gauge, switches\n"
	list := parse(t, switches)
	f("a switch's counter that a collector reads from a GPU", switches, []*view.Source{source("nvml", list, now, []cell{{list.Fields[0].Desc.ID, 3, nil}})}, nil,
		"nvml GPU-a NVSWITCH_FATAL_ERRORS = 3[]")
	f("a collector that could not open the new list", "DCGM_FI_DEV_FAN_SPEED, gauge, fan\n",
		[]*view.Source{source("nvml", parse(t, temperature), now, []cell{{150, 41, nil}})}, nil,
		"nvml GPU-a FAN_SPEED = not_listed: the collector nvml still serves a list without it")
}
