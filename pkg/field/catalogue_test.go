package field

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"warpgauge/internal/testkit"
)

func TestByName(t *testing.T) {
	f := func(name string, id ID, scale float64) {
		t.Helper()
		d, got, ok := ByName(name)
		testkit.ErrorIf(t, !ok || d.ID != id || got != scale, "ByName(%q) = %v, %v, %v, want id %d × %v", name, d, got, ok, id, scale)
	}
	// The names of dcgm-exporter's files, of DCGM 4.6, of DCGM 3 and of DCGM 1.x.
	f("DCGM_FI_DEV_GPU_TEMP", 150, 1)
	f("DCGM_FI_DEV_GPU_TEMP_CELSIUS", 150, 1)
	f("dcgm_gpu_temp", 150, 1)
	f("DCGM_FI_DRIVER_VERSION", 1, 1)
	f("DCGM_FI_SYSTEM_DRIVER_VERSION", 1, 1)
	f("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", 449, 1)
	f("DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL", 449, 1)
	f("dcgm_nvlink_bandwidth_total", 449, 1)
	f("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", ClockEventReasons, 1)
	f("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", ClockEventReasons, 1)
	f("DCGM_FI_DEV_XID_ERROR", XIDErrors, 1)
	f("DCGM_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST_COUNT_NS", 1421, 1)
	f("DCGM_FI_UNKNOWN", 0, 1)
	f("DCGM_FI_FIRST_VGPU_FIELD_ID", 520, 1)
	f("DCGM_EXP_XID_ERRORS_TOTAL", XIDErrorsTotal, 1)
	// Multiples, in base units.
	f("DCGM_FI_DEV_GPU_UTIL_RATIO", 203, 0.01)
	f("DCGM_FI_DEV_NVLINK_THROUGHPUT_L12_BYTES_PER_SECOND", 446, 1000*1024)

	for _, name := range []string{"", "dcgm_fi_dev_gpu_temp", "DCGM_FI_DEV_GPU_TEMP ", "XID_EVENT", "XIDS_SINCE", "XIDS_UNTIL", "150"} {
		if d, _, ok := ByName(name); ok {
			t.Errorf("ByName(%q) = %v", name, d.Name)
		}
	}
}

// Properties of every entry.
func TestCatalogue(t *testing.T) {
	metricName := regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`) // Prometheus', without colons
	all := All()
	testkit.Equal(t, "All is in the order of ids", true, slices.IsSortedFunc(all, func(a, b *Descriptor) int { return int(a.ID) - int(b.ID) }))
	seen := map[string]ID{}
	for _, d := range all {
		for _, name := range append([]string{d.Name}, d.Aliases...) {
			testkit.Equal(t, fmt.Sprintf("%d: Prometheus takes the name %q", d.ID, name), true, metricName.MatchString(name))
			other, dup := seen[name]
			testkit.ErrorIf(t, dup, "%q is both %d and %d", name, other, d.ID)
			seen[name] = d.ID
		}
		number := d.Kind == Int64 || d.Kind == Double
		testkit.Equal(t, fmt.Sprintf("%s: a %v with range %v to %v", d.Name, d.Kind, d.Min, d.Max), number, d.Min < d.Max)
		testkit.ErrorIf(t, math.IsInf(d.Min, 0) || math.IsInf(d.Max, 0), "%s: range %v to %v", d.Name, d.Min, d.Max)
		testkit.ErrorIf(t, d.Help == "" || strings.ContainsAny(d.Help, "{}?\n"), "%s: help %q", d.Name, d.Help)
		if strings.HasSuffix(d.Level.String(), "unknown") || d.Cost.String() == "unknown" || d.Kind.String() == "unknown" {
			t.Errorf("%s: kind %v, level %v, cost %v", d.Name, d.Kind, d.Level, d.Cost)
		}
		use, ok := d.Use()
		testkit.ErrorIf(t, ok != (number || d.Kind == String) || (use == Label) != (d.Kind == String), "%s: a %v is used as %v, %v", d.Name, d.Kind, use, ok)
		for _, w := range Windows(d) {
			testkit.ErrorIf(t, w.Library == "" || w.Evidence == "", "%s: window %+v", d.Name, w)
		}
		checkMultiple(t, d)
	}
}

func checkMultiple(t *testing.T, d *Descriptor) {
	t.Helper()
	for _, id := range d.Scaled {
		s, ok := ByID(id)
		testkit.ErrorIf(t, !ok || s.Of != d.ID || s.Factor <= 0, "%s: %d is not a multiple of it", d.Name, id)
	}
	if d.Factor == 0 {
		return
	}
	of, ok := ByID(d.Of)
	switch {
	case !ok || of.Factor != 0 || !slices.Contains(of.Scaled, d.ID):
		t.Errorf("%s: is a multiple of %d", d.Name, d.Of)
	case d.Kind != of.Kind || d.Level != of.Level || d.Cost != of.Cost:
		t.Errorf("%s: is not read as %s is", d.Name, of.Name)
	case d.Max != of.Max*d.Factor || d.Min != of.Min*d.Factor:
		t.Errorf("%s: range %v to %v", d.Name, d.Min, d.Max)
	}
}

// Ranges accept the values of real devices and reject DCGM's markers for "no value" and well-known nonsense.
func TestRanges(t *testing.T) {
	f := func(id ID, value float64, want bool) {
		t.Helper()
		d, _ := ByID(id)
		got := value >= d.Min && value <= d.Max
		testkit.ErrorIf(t, got != want, "%s: %v is plausible: %v", d.Name, value, got)
	}
	f(203, 100, true)
	f(203, 808_464_432, false)   // "0000" read as a number
	f(203, 2_147_483_632, false) // a blank of 32 bits
	f(156, 1e15, true)
	f(156, 0x7ffffffffffffff0, false) // a blank of 64 bits
	f(449, 0x7ffffffffffffff3, false)
	f(150, -10, true)
	f(150, 2_147_483_632, false)
	f(155, 1400, true)
	f(155, 140737488355328, false) // a blank of a double
	f(101, 10_501, true)           // a GDDR6X clock
	f(252, 288*1024, true)         // a big GPU, in MiB
	f(191, 130, true)              // fans may turn faster than 100 %
	f(1001, 1.02, true)
	f(1001, 1.5, false)
	f(112, 0x1ff, true)
}

func TestSuggest(t *testing.T) {
	f := func(in, want string) {
		t.Helper()
		got, ok := Suggest(in)
		testkit.ErrorIf(t, got != want || ok != (want != ""), "Suggest(%q) = %q, %v, want %q", in, got, ok, want)
	}
	f("DCGM_FI_DEV_GPU_TMP", "DCGM_FI_DEV_GPU_TEMP")
	f("DCGM_FI_DEV_GPU_UITL", "DCGM_FI_DEV_GPU_UTIL")
	f("dcgm_fi_dev_gpu_temp", "DCGM_FI_DEV_GPU_TEMP")
	f("Dcgm_Gpu_Temp", "dcgm_gpu_temp")
	f("GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP")
	f("prof_sm_active", "DCGM_FI_PROF_SM_ACTIVE")
	f("DCGM_EXP_XID_ERROR_COUNT", "DCGM_EXP_XID_ERRORS_COUNT")
	f("DCGM_FI_DEV_SM_CLOCK_HERZ", "DCGM_FI_DEV_SM_CLOCK_HERTZ")
	f("", "")
	f("something else altogether", "")
	f(strings.Repeat("DCGM", 100), "")
}

// TestXIDText compares the texts with dcgm-exporter's. The digest covers a line "CODE<tab>TEXT" for each code
// from 0, from internal/pkg/collector/xid_errors.go at commit d5e5f51.
func TestXIDText(t *testing.T) {
	const codes, theirs = 173, "575a731f3e7ee9551fc59f0dff7abc39b17ecf1187b72c485d44ed836cdefccf"
	sum := sha256.New()
	for code := range codes {
		fmt.Fprintf(sum, "%d\t%s\n", code, XIDText(code))
	}
	testkit.Equal(t, "digest of the texts of the XIDs", theirs, hex.EncodeToString(sum.Sum(nil)))
	for code, want := range map[int]string{-1: "Unknown Error", 173: "Unknown Error", 1 << 31: "Unknown Error"} {
		testkit.Equal(t, fmt.Sprintf("text of XID %d", code), want, XIDText(code))
	}
}
