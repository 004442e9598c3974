package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warpgauge/pkg/field"
)

func TestFieldTable(t *testing.T) {
	f := func(filter string, want ...string) {
		t.Helper()
		var b strings.Builder
		if err := writeFieldTable(&b, filter); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.Join(want, "\n")+"\n", b.String()); diff != "" {
			t.Errorf("writeFieldTable(%q) (-want +got):\n%s", filter, diff)
		}
	}
	head := "ID    NAME                                  KIND  LEVEL  UNIT  COST       MEANING"
	f("SM_CLOCK_HERTZ", "ID    NAME                        KIND  LEVEL  UNIT  COST       MEANING",
		"1603  DCGM_FI_DEV_SM_CLOCK_HERTZ  int   gpu    Hz    each tick  SM clock (DCGM_FI_DEV_SM_CLOCK × 1e+06)")
	f("energy_", head,
		"156   DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION  int   gpu    mJ    each tick  Energy used since the driver was loaded",
		"1611  DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL   int   gpu    J     each tick  Energy used since the driver was loaded (DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION × 0.001)")
	f("no such field", `no field matches "no such field"`)

	var all strings.Builder
	if err := writeFieldTable(&all, ""); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(all.String(), "\n"); lines != len(field.All())+1 {
		t.Errorf("%d lines for %d fields", lines, len(field.All()))
	}
}
