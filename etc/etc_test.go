package etc_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"warpgauge/etc"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/field"
)

func read(t *testing.T, name string) []byte {
	t.Helper()
	text := testkit.Get(etc.Files().ReadFile(name))(t)
	return text
}

// parse reads a file in the strictest mode and expects no warnings.
func parse(t *testing.T, name string, text []byte) field.List {
	t.Helper()
	l, problems, err := field.Parse(bytes.NewReader(text), field.ParseOptions{File: name, Strict: true})
	for _, p := range problems {
		t.Error(p)
	}
	testkit.Must(t, err)
	return l
}

// uncomment enables the rows that are commented out, unless their name is active elsewhere.
func uncomment(text []byte, active field.List) []byte {
	have := map[string]bool{}
	for _, f := range active.Fields {
		have[f.Name] = true
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		row := strings.TrimPrefix(line, "# ")
		name, _, _ := strings.Cut(row, ",")
		if (strings.HasPrefix(strings.ToLower(name), "dcgm_") || strings.HasPrefix(name, "amd_gpu_")) && row != line && !have[name] {
			line = row
		}
		out = append(out, line)
	}
	return []byte(strings.Join(out, ""))
}

func names(l field.List) []string {
	var out []string
	for _, f := range l.Fields {
		out = append(out, f.Type.String()+" "+f.Name)
	}
	return out
}

func TestFiles(t *testing.T) {
	rows := map[string][2]int{ // rows as shipped, and with all comments enabled
		"default-counters.csv":          {26, 26 + 37},
		"amd-counters.csv":              {39, 39 + 28},
		"dcp-metrics-included.csv":      {26, 26 + 31},
		"recommended-counters.csv":      {50, 50},
		"1.x-compatibility-metrics.csv": {20, 20 + 19},
	}
	if got, err := etc.Files().ReadDir("."); err != nil || len(got) != len(rows) {
		t.Errorf("files are %v, %v", got, err)
	}
	for name, want := range rows {
		t.Run(name, func(t *testing.T) {
			text := read(t, name)
			active := parse(t, name, text)
			all := parse(t, name, uncomment(text, active))
			if got := [2]int{len(active.Fields), len(all.Fields)}; got != want {
				t.Errorf("%v rows, want %v", got, want)
			}
			for _, f := range all.Fields {
				scaled := f.Type == field.Histogram // the DCGM 4.7 name, in base units
				if f.Help == "" || f.Scale != 1 && !scaled {
					t.Errorf("%s: help %q, scale %v", f.Name, f.Help, f.Scale)
				}
			}
		})
	}
}

// Users of dcgm-exporter 4.5 to 4.8 get the same rows by default, in the same order with the same types.
func TestDefaultRows(t *testing.T) {
	want := []string{
		"gauge DCGM_FI_DEV_SM_CLOCK", "gauge DCGM_FI_DEV_MEM_CLOCK",
		"gauge DCGM_FI_DEV_MEMORY_TEMP", "gauge DCGM_FI_DEV_GPU_TEMP",
		"gauge DCGM_FI_DEV_POWER_USAGE", "counter DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
		"counter DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
		"gauge DCGM_FI_DEV_GPU_UTIL", "gauge DCGM_FI_DEV_MEM_COPY_UTIL",
		"gauge DCGM_FI_DEV_ENC_UTIL", "gauge DCGM_FI_DEV_DEC_UTIL",
		"gauge DCGM_FI_DEV_XID_ERRORS",
		"gauge DCGM_FI_DEV_FB_FREE", "gauge DCGM_FI_DEV_FB_USED", "gauge DCGM_FI_DEV_FB_RESERVED",
		"counter DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
		"gauge DCGM_FI_DEV_VGPU_LICENSE_STATUS",
		"counter DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
		"gauge DCGM_FI_DEV_ROW_REMAP_FAILURE",
		"label DCGM_FI_DRIVER_VERSION",
		"gauge DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge DCGM_FI_PROF_DRAM_ACTIVE",
		"gauge DCGM_FI_PROF_PCIE_TX_BYTES", "gauge DCGM_FI_PROF_PCIE_RX_BYTES",
	}
	testkit.Equal(t, "default rows", want, names(parse(t, etc.Default, etc.DefaultCounters())))
	testkit.Equal(t, "rows of the profiling file", want, names(parse(t, "dcp", read(t, "dcp-metrics-included.csv"))))
}

// TestTypes: rows of the shipped lists have the type that the catalogue recommends, including rows that are commented
// out.
func TestTypes(t *testing.T) {
	row := regexp.MustCompile(`(?m)^(?:# *)?([A-Za-z]\w*), *(gauge|counter|label),`)
	used := map[field.ID]map[string]bool{}
	for _, file := range []string{"default-counters.csv", "dcp-metrics-included.csv", "1.x-compatibility-metrics.csv", "recommended-counters.csv", "amd-counters.csv"} {
		for _, m := range row.FindAllStringSubmatch(string(read(t, file)), -1) {
			d, _, ok := field.ByName(m[1])
			if !ok {
				t.Fatalf("%s: unknown field %q", file, m[1])
			}
			if used[d.ID] == nil {
				used[d.ID] = map[string]bool{}
			}
			used[d.ID][m[2]] = true
		}
	}
	if len(used) < 100 {
		t.Errorf("only %d fields found", len(used))
	}
	for id, types := range used {
		d, _ := field.ByID(id)
		use, ok := d.Use()
		if d.Name == "DCGM_FI_DEV_NVLINK_BANDWIDTH_L0" {
			types["gauge"] = true // the lists keep dcgm-exporter's type, but the value is in MB/s
		}
		if !ok || !types[use.String()] {
			t.Errorf("%s: Use says %v, the lists have %v", d.Name, use, types)
		}
	}
}
