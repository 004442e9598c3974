package field

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"warpgauge/internal/testkit"
)

// readings returns the readings of l as text: name, shortest interval, and whether the default also applies.
func readings(l List) []string {
	var out []string
	for _, r := range l.Readings() {
		s := r.Desc.Name + " " + r.Interval.String()
		if r.Default {
			s += " default"
		}
		out = append(out, s)
	}
	return out
}

func mustParse(t *testing.T, text string) List {
	t.Helper()
	l, problems, err := Parse(strings.NewReader(text), ParseOptions{Strict: true})
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	return l
}

func TestReadings(t *testing.T) {
	f := func(text string, want ...string) {
		t.Helper()
		testkit.Equal(t, fmt.Sprintf("readings of %q", text), want, readings(mustParse(t, text)))
	}
	f("DCGM_FI_DEV_GPU_TEMP,gauge,h", "DCGM_FI_DEV_GPU_TEMP 0s default")
	// Both dialects and a histogram use one reading.
	f("DCGM_FI_DEV_SM_CLOCK_HERTZ,gauge,h\nDCGM_FI_DEV_GPU_TEMP,gauge,h\nDCGM_FI_DEV_SM_CLOCK,gauge,h\ndcgm_sm_clock,histogram,h",
		"DCGM_FI_DEV_SM_CLOCK 0s default", "DCGM_FI_DEV_GPU_TEMP 0s default")
	// The smallest interval wins; a field without one stands for the default.
	f("DCGM_FI_DEV_SM_CLOCK_HERTZ,gauge,h,interval=5s\nDCGM_FI_DEV_SM_CLOCK,gauge,h,interval=100ms",
		"DCGM_FI_DEV_SM_CLOCK 100ms")
	f("DCGM_FI_DEV_SM_CLOCK_HERTZ,gauge,h,interval=5s\nDCGM_FI_DEV_SM_CLOCK,gauge,h",
		"DCGM_FI_DEV_SM_CLOCK 5s default")
	f("DCGM_FI_DEV_SM_CLOCK,gauge,h\nDCGM_FI_DEV_SM_CLOCK_HERTZ,gauge,h,interval=5s",
		"DCGM_FI_DEV_SM_CLOCK 5s default")
	// A computed field needs its input.
	f("DCGM_EXP_XID_ERRORS_COUNT,gauge,h\nDCGM_EXP_XID_ERRORS_TOTAL,counter,h,interval=50ms\nDCGM_EXP_CLOCK_EVENTS_TOTAL,counter,h\nDCGM_EXP_GPU_HEALTH_STATUS,gauge,h",
		"XID_EVENT 50ms default", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS 0s default", "DCGM_EXP_GPU_HEALTH_STATUS 0s default")
	// Labels are read at discovery.
	f("DCGM_FI_DRIVER_VERSION,label,h")
}

func TestBuckets(t *testing.T) {
	f := func(row string, want ...float64) {
		t.Helper()
		got := mustParse(t, row).Fields[0].Buckets
		testkit.Equal(t, fmt.Sprintf("buckets of %q", row), want, got)
	}
	f("DCGM_FI_DEV_GPU_UTIL,histogram,h", 0, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 100)
	f("DCGM_FI_DEV_GPU_UTIL_RATIO,histogram,h", 0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1)
	f("DCGM_FI_PROF_SM_ACTIVE,histogram,h", 0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1)
	f("DCGM_FI_DEV_PSTATE,histogram,h", 0, 1, 2, 5, 10, 20)
	f("DCGM_FI_DEV_MIG_MODE,histogram,h", 0, 1)
	f("DCGM_FI_DEV_GPU_UTIL,histogram,h,buckets=1|50.5|1e2", 1, 50.5, 100)
	f("DCGM_FI_DEV_GPU_UTIL,gauge,h")
}

// Every numeric reading gets a histogram with sensible buckets in its own unit.
func TestBucketsOfAll(t *testing.T) {
	for _, d := range All() {
		if d.Kind != Int64 && d.Kind != Double || d.ID >= FirstExporter {
			continue
		}
		reading, scale, _ := ByName(d.Name)
		b := bucketsFor(reading, scale)
		n := len(b)
		testkit.ErrorIf(t, n > 20 || n < 4 && d.Unit != "bool" && d.Max-d.Min > 8, "%s: %d buckets", d.Name, n)
		for i := range b {
			testkit.ErrorIf(t, i > 0 && b[i] <= b[i-1], "%s: buckets %v do not ascend", d.Name, b)
		}
		testkit.ErrorIf(t, b[0] < d.Min || b[len(b)-1] > d.Max, "%s: buckets %v are outside of %v to %v", d.Name, b, d.Min, d.Max)
	}
}

// TestHidden: hidden readings come last, once, and are not part of the file.
func TestHidden(t *testing.T) {
	list := mustParse(t, "DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_EXP_CLOCK_EVENTS_TOTAL, counter, c\n")
	energy, _ := ByID(156)
	temperature, _ := ByID(150)
	reasons, _ := ByID(ClockEventReasons)
	xids, _ := ByID(XIDEvent)
	list.Hidden = []Reading{{Desc: temperature, Interval: time.Minute}, {Desc: energy, Interval: time.Minute}, {Desc: reasons}, {Desc: xids}}
	var got []ID
	for _, r := range list.Readings() {
		got = append(got, r.Desc.ID)
	}
	testkit.Equal(t, "readings", []ID{150, ClockEventReasons, 156, XIDEvent}, got)
	r := list.Readings()[0]
	testkit.ErrorIf(t, r.Interval != 0 || !r.Default, "what is listed is read as %+v", r)
	for id, want := range map[ID]bool{150: false, ClockEventReasons: false, 156: true, XIDEvent: true, XIDsSince: true, XIDsUntil: true, 155: false} {
		testkit.Equal(t, fmt.Sprintf("reading %d is hidden", id), want, list.Hides(id))
	}
	testkit.Lacks(t, "the file", string(Format(list)), energy.Name)
	testkit.Equal(t, "readings of a list that shows nothing", 0, len(List{Hidden: list.Hidden}.Readings()))
}
