package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/field"
)

func TestFieldTable(t *testing.T) {
	f := func(code int, stderr string, patterns []string, want ...string) {
		t.Helper()
		o := execute(t, nil, append([]string{"fields"}, patterns...)...)
		testkit.Equal(t, fmt.Sprintf("fields %q", patterns), strings.Join(append(want, ""), "\n"), o.Out)
		if o.Code != code || !strings.Contains(o.Err, stderr) || (stderr == "") != (o.Err == "") {
			t.Errorf("fields %q: exit code %d, want %d; standard error %q, want %q", patterns, o.Code, code, o.Err, stderr)
		}
	}
	f(0, "", []string{"SM_CLOCK_HERTZ"},
		"ID    NAME                        TYPE   UNIT  LEVEL  COST       COLLECTORS      MEANING",
		"1603  DCGM_FI_DEV_SM_CLOCK_HERTZ  gauge  Hz    gpu    each tick  dcgm,nvml,rocm  SM clock (DCGM_FI_DEV_SM_CLOCK × 1e+06)")
	energy := []string{
		"ID    NAME                                  TYPE     UNIT  LEVEL  COST       COLLECTORS      MEANING",
		"156   DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION  counter  mJ    gpu    each tick  dcgm,nvml,rocm  Energy used since the driver was loaded",
		"1611  DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL   counter  J     gpu    each tick  dcgm,nvml,rocm  Energy used since the driver was loaded (DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION × 0.001)",
	}
	f(0, "", []string{"energy_"}, energy...)
	f(1, `no field matches "nosuch"`, []string{"energy_", "nosuch"}, energy...)
	f(1, `no field matches "DCGM_FI_DEV_GPU_TMP" (did you mean DCGM_FI_DEV_GPU_TEMP?)`, []string{"DCGM_FI_DEV_GPU_TMP"})
}

func TestFieldsForScripts(t *testing.T) {
	var got struct{ Fields []struct{ Windows []any } }
	o := execute(t, nil, "fields", "--output=json")
	if err := json.Unmarshal([]byte(o.Out), &got); err != nil || o.Code != 0 || len(got.Fields) != len(field.All()) {
		t.Errorf("JSON: exit code %d, error %v, %d rows for %d fields", o.Code, err, len(got.Fields), len(field.All()))
	}
	o = execute(t, nil, "fields", "--output=json", "DCGM_FI_DEV_POWER_USAGE*")
	o.Want(t, 0, `"name": "DCGM_FI_DEV_POWER_USAGE",`, `"type": "gauge",`, `"dcgm",`, `"nvml",`, `"rocm"`)
	if err := json.Unmarshal([]byte(o.Out), &got); err != nil || len(got.Fields[0].Windows) != 3 {
		t.Errorf("JSON of DCGM_FI_DEV_POWER_USAGE: %v, %+v", err, got)
	}
	if o = execute(t, nil, "fields", "--output=json", "nosuch"); o.Code != 1 || strings.TrimSpace(o.Out) != "{\n  \"fields\": []\n}" {
		t.Errorf("JSON of nothing: exit code %d, %q", o.Code, o.Out)
	}
	execute(t, nil, "fields", "--output=xml").Want(t, 1, "write table or json")
}
