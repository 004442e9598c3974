package field

import (
	"encoding/csv"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"warpgauge/internal/testkit"
)

var must = testkit.Must

// readFacts returns the rows of a file of testdata without its heading.
func readFacts(t *testing.T, name string) [][]string {
	t.Helper()
	file, err := os.Open("testdata/" + name)
	must(t, err)
	defer file.Close()
	r := csv.NewReader(file)
	r.Comment = '#'
	rows := testkit.Get(r.ReadAll())(t)
	return rows[1:]
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	v := testkit.Get(strconv.ParseFloat(s, 64))(t)
	return v
}

// TestRenamedFields checks each line of NVIDIA's table: both names belong to the same field and translate to each other.
func TestRenamedFields(t *testing.T) {
	inBaseUnits := map[ID]bool{} // DCGM 4.7 has another name, with another unit
	for _, row := range readFacts(t, "base-unit-fields.csv") {
		inBaseUnits[ID(number(t, row[2]))] = true
	}
	rows := readFacts(t, "renamed-fields.csv")
	testkit.FatalIf(t, len(rows) < 325, "only %d lines", len(rows))
	renamed := map[ID]bool{}
	for _, row := range rows {
		id, old, latest := ID(number(t, row[0])), row[1], row[2]
		renamed[id] = true
		d, scale, ok := ByName(old)
		if old == "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS" { // from DCGM 3; dcgm-exporter 4.5 and later has the new one
			old = latest
		}
		if !ok || d.ID != id || d.Name != old || scale != 1 {
			t.Errorf("%s is %v × %v, want field %d under its own name", old, d, scale, id)
			continue
		}
		if latest == "DCGM_FI_DEV_GPU_UTIL_RATIO" {
			continue // the percentage in DCGM 4.6, the ratio in 4.7 and here
		}
		if d, scale, ok := ByName(latest); !ok || d.ID != id || scale != 1 {
			t.Errorf("%s is %v × %v, want field %d", latest, d, scale, id)
		}
		if name, scale := d.NewName(); !inBaseUnits[id] && (name != latest || scale != 1) {
			t.Errorf("the new name of %s is %s × %v, want %s", old, name, scale, latest)
		}
	}
	for _, d := range All() {
		testkit.ErrorIf(t, d.Renamed != "" && !renamed[d.ID], "%s is renamed to %s, which the table does not have", d.Name, d.Renamed)
	}
}

func TestBaseUnitFields(t *testing.T) {
	rows := readFacts(t, "base-unit-fields.csv")
	known := map[ID]bool{}
	for _, row := range rows {
		id, name, oldID, oldName, factor := ID(number(t, row[0])), row[1], ID(number(t, row[2])), row[3], number(t, row[4])
		known[id] = true
		if d, ok := ByID(id); !ok || d.Name != name || d.Of != oldID || d.Factor != factor {
			t.Errorf("field %d is %+v, want %s, %d × %v", id, d, name, oldID, factor)
		}
		d, scale, ok := ByName(oldName)
		if !ok || d.ID != oldID || scale != 1 {
			t.Errorf("%s is %v × %v, want field %d", oldName, d, scale, oldID)
			continue
		}
		if got, scale := d.NewName(); got != name || scale != factor {
			t.Errorf("the new name of %s is %s × %v, want %s × %v", oldName, got, scale, name, factor)
		}
	}
	for _, d := range All() {
		testkit.ErrorIf(t, d.Factor != 0 && !known[d.ID], "field %d, %s, is not in the table", d.ID, d.Name)
	}
}

func TestNamed(t *testing.T) {
	f := func(wanted Names, in string, want ...string) {
		t.Helper()
		l, problems := mustParse(t, in).Named(wanted, "f")
		got := []string{}
		for line := range strings.Lines(string(Format(l))) {
			got = append(got, strings.TrimSpace(line))
		}
		for _, p := range problems {
			got = append(got, p.Error())
		}
		testkit.Equal(t, fmt.Sprintf("%s of %q", wanted, in), want, got)
	}
	const clock, hertz = "DCGM_FI_DEV_SM_CLOCK,gauge,in MHz\n", "DCGM_FI_DEV_SM_CLOCK_HERTZ,gauge,in Hz\n"
	// With another unit the help comes from the catalogue, with another name from the file.
	f(NamesNew, clock, `DCGM_FI_DEV_SM_CLOCK_HERTZ, gauge,"SM clock (Hz)"`)
	f(NamesOld, hertz, `DCGM_FI_DEV_SM_CLOCK, gauge,"SM clock (MHz)"`)
	f(NamesNew, "DCGM_FI_DEV_GPU_TEMP,gauge,hot,interval=5s", `DCGM_FI_DEV_GPU_TEMP_CELSIUS, gauge,"hot",interval=5s`)
	f(NamesBoth, clock, `DCGM_FI_DEV_SM_CLOCK, gauge,"in MHz"`, `DCGM_FI_DEV_SM_CLOCK_HERTZ, gauge,"SM clock (Hz)"`)
	// A line's own choice goes first.
	f(NamesNew, "DCGM_FI_DEV_GPU_TEMP,gauge,h,names=both\nDCGM_FI_DEV_POWER_USAGE,gauge,h,names=as-written",
		`DCGM_FI_DEV_GPU_TEMP, gauge,"h"`, `DCGM_FI_DEV_GPU_TEMP_CELSIUS, gauge,"h"`, `DCGM_FI_DEV_POWER_USAGE, gauge,"h"`)
	f(NamesAsWritten, "DCGM_FI_DEV_GPU_TEMP,gauge,h,names=new", `DCGM_FI_DEV_GPU_TEMP_CELSIUS, gauge,"h"`)
	// A list with both names already: each name once, with the file's help.
	both := []string{`DCGM_FI_DEV_SM_CLOCK, gauge,"in MHz"`, `DCGM_FI_DEV_SM_CLOCK_HERTZ, gauge,"in Hz"`}
	f(NamesBoth, clock+hertz, both...)
	f(NamesAsWritten, clock+hertz, both...)
	f(NamesNew, clock+hertz, both[1])
	f(NamesOld, clock+hertz, both[0])
	// Only names of DCGM 1.x and of DCGM 4.6.
	f(NamesOld, "dcgm_sm_clock,gauge,h", `DCGM_FI_DEV_SM_CLOCK, gauge,"h"`)
	f(NamesBoth, "DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL,counter,h", `DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL, counter,"h"`,
		`DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL, counter,"h"`, `DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND, gauge,"NVLink data sent and received; all links (bytes/s)"`)
	f(NamesNew, "DCGM_FI_DEV_RETIRED_PENDING,counter,h\nDCGM_FI_DEV_RETIRED_SBE,counter,h",
		`DCGM_FI_DEV_PAGE_RETIRED_PENDING, gauge,"h"`, `DCGM_FI_DEV_PAGE_RETIRED_SBE_TOTAL, counter,"h"`)
	f(NamesAsWritten, "DCGM_FI_DEV_GPU_TEMP,gauge,h\nDCGM_FI_DEV_GPU_UTIL_RATIO,gauge,h", `DCGM_FI_DEV_GPU_TEMP, gauge,"h"`, `DCGM_FI_DEV_GPU_UTIL_RATIO, gauge,"h"`,
		`f:2: warning: field "DCGM_FI_DEV_GPU_UTIL_RATIO" is 0 to 1; dcgm-exporter 4.8.3 and 4.8.4 have percent under that name: write DCGM_FI_DEV_GPU_UTIL for percent`)
	f(NamesAsWritten, "DCGM_FI_DEV_GPU_TEMP_CELSIUS,gauge,h\nDCGM_FI_DEV_GPU_UTIL_RATIO,gauge,h", `DCGM_FI_DEV_GPU_TEMP_CELSIUS, gauge,"h"`, `DCGM_FI_DEV_GPU_UTIL_RATIO, gauge,"h"`)
	// Labels, and fields with one name only: the exporter's, AMD's, unchanged ones.
	f(NamesBoth, "DCGM_FI_DRIVER_VERSION,label,h", `DCGM_FI_DRIVER_VERSION, label,"h"`, `DCGM_FI_SYSTEM_DRIVER_VERSION, label,"h"`)
	for _, wanted := range []Names{NamesOld, NamesNew, NamesBoth} {
		f(wanted, "DCGM_EXP_XID_ERRORS_TOTAL,counter,h\nDCGM_FI_PROF_PCIE_TX_BYTES,gauge,h\namd_gpu_temperature_celsius,gauge,h",
			`DCGM_EXP_XID_ERRORS_TOTAL, counter,"h"`, `DCGM_FI_PROF_PCIE_TX_BYTES, gauge,"h"`, `amd_gpu_temperature_celsius, gauge,"h"`)
		// A histogram keeps its name, and no other field gets it.
		f(wanted, "DCGM_FI_DEV_GPU_UTIL_RATIO,histogram,h,buckets=1\nDCGM_FI_DEV_GPU_UTIL,gauge,g", func() []string {
			want := []string{`DCGM_FI_DEV_GPU_UTIL_RATIO, histogram,"h",buckets=1`, `DCGM_FI_DEV_GPU_UTIL, gauge,"g"`}
			if wanted != NamesOld {
				want = append(want, `f:2: warning: field "DCGM_FI_DEV_GPU_UTIL" is not shown as "DCGM_FI_DEV_GPU_UTIL_RATIO", which line 1 has with another type`)
			}
			return want
		}()...)
	}
}

func TestParseNames(t *testing.T) {
	for _, bad := range []string{"", "New", "4.9"} {
		n, err := ParseNames(bad)
		testkit.ErrorIf(t, err == nil, "ParseNames(%q) = %q", bad, n)
	}
	_, problems, err := Parse(strings.NewReader("DCGM_FI_DEV_GPU_TEMP,gauge,h,names=newer"), ParseOptions{File: "f"})
	if err == nil || len(problems) != 1 || problems[0].Error() != `f:1:30: error: bad names "newer"; write as-written, old, new or both` {
		t.Errorf("error %v, problems %v", err, problems)
	}
}
