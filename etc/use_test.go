package etc_test

import (
	"regexp"
	"testing"

	"warpgauge/etc"
	"warpgauge/pkg/field"
)

// TestTypes: the type that the catalogue advises for a field is the one that rows of the
// shipped lists have, those behind a comment sign included.
func TestTypes(t *testing.T) {
	row := regexp.MustCompile(`(?m)^(?:# *)?([A-Za-z]\w*), *(gauge|counter|label),`)
	used := map[field.ID]map[string]bool{}
	for _, file := range []string{"default-counters.csv", "dcp-metrics-included.csv", "1.x-compatibility-metrics.csv", "recommended-counters.csv", "amd-counters.csv"} {
		text, err := etc.Files().ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range row.FindAllStringSubmatch(string(text), -1) {
			d, _, ok := field.ByName(m[1])
			if !ok {
				t.Errorf("%s: unknown field %q", file, m[1])
				continue
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
			types["gauge"] = true // the lists have dcgm-exporter's type, but it is in MB/s
		}
		if !ok || !types[use.String()] {
			t.Errorf("%s: Use says %v, the lists have %v", d.Name, use, types)
		}
	}
}
