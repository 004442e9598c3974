package main_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestE2EConfigFile runs the binary with dcgm-exporter's configuration file, also with a child
// process, which must not read the file.
func TestE2EConfigFile(t *testing.T) {
	t.Parallel()
	exe := build(t)
	path := filepath.Join(t.TempDir(), "config.yaml")
	const fields = `version: 2
metrics:
  enableExporterMetrics: %v
  fields:
    - {name: DCGM_FI_DEV_GPU_TEMP, prometheusType: gauge, help: Temperature}
    - {name: %s, prometheusType: gauge, help: Another}
collections:
  - {name: scrape, every: 100ms, metrics: {include: ["*"]}}
  - {name: slow, every: 1h, metrics: {include: ["%s"]}}
`
	write(t, path, fmt.Sprintf(fields, true, "DCGM_FI_DEV_FB_USED", "*_FB_*"))
	e := serve(t, exe, "--config-file="+path, "--isolation=process")
	up := is(1, "warpgauge_collector_up", "collector", "fake")
	used := count(8, "DCGM_FI_DEV_FB_USED")
	e.await(t, "the fields of the file", eightGPUs, used, up)

	write(t, path, fmt.Sprintf(fields, true, "DCGM_FI_DEV_FB_FREE", "*_NOTHING_*"))
	e.awaitLog(t, `collection \"slow\" names no field of the list`)
	e.await(t, "the list in service stays", eightGPUs, used, up)
	write(t, path, fmt.Sprintf(fields, true, "DCGM_FI_DEV_FB_FREE", "*_FB_*"))
	e.await(t, "the other field, without a restart", eightGPUs, count(8, "DCGM_FI_DEV_FB_FREE"), up)

	// The child gets the list with the selected names.
	named := strings.Replace(fields, "metrics:\n", "metrics:\n  fieldNames: both\n", 1)
	write(t, path, fmt.Sprintf(named, true, "DCGM_FI_DEV_FB_FREE", "*_FB_*"))
	e.await(t, "the names of both generations", eightGPUs, count(8, "DCGM_FI_DEV_GPU_TEMP_CELSIUS"), count(8, "DCGM_FI_DEV_FB_FREE_BYTES"), up)

	// The exporter never ignores an option that selects the list.
	for want, args := range map[string][]string{
		"key metric is unknown": {"--config-file=" + file(t, "bad.yaml", "version: 2\nmetric: {}\n")},
		"no such file":          {"--config-file=" + path + ".not"},
		"read ConfigMap a:b":    {"-m", "a:b"},
	} {
		if code, out := runToEnd(t, exe, append(args, "--enable-fake", "--address=127.0.0.1:0")...); code != 1 || !strings.Contains(out, want) {
			t.Errorf("%q: exit code %d, want 1 and %q in:\n%s", args, code, want, out)
		}
	}
}
