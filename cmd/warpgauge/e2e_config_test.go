package main_test

import (
	"fmt"
	"path/filepath"
	"testing"
)

// TestE2EConfigFile runs the binary with dcgm-exporter's configuration file and a child process, which must not read the
// file. The child gets the list with the selected names.
func TestE2EConfigFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.yaml")
	const fields = `version: 2
metrics:
  enableExporterMetrics: true
  fieldNames: %s
  fields:
    - {name: DCGM_FI_DEV_GPU_TEMP, prometheusType: gauge, help: Temperature}
    - {name: DCGM_FI_DEV_FB_FREE, prometheusType: gauge, help: Another}
collections:
  - {name: scrape, every: 100ms, metrics: {include: ["*"]}}
  - {name: slow, every: 1h, metrics: {include: ["%s"]}}
`
	write(t, path, fmt.Sprintf(fields, "old", "*_FB_*"))
	e := serve(t, build(t), "--config-file="+path, "--isolation=process")
	up := is(1, "warpgauge_collector_up", "collector", "fake")
	free := count(8, "DCGM_FI_DEV_FB_FREE")
	e.await(t, "the fields of the file", eightGPUs, free, up)
	write(t, path, fmt.Sprintf(fields, "both", "*_NOTHING_*"))
	e.awaitLog(t, `collection \"slow\" names no field of the list`)
	e.await(t, "the list in service stays", eightGPUs, free, up)
	write(t, path, fmt.Sprintf(fields, "both", "*_FB_*"))
	e.await(t, "the names of both generations", eightGPUs, free, count(8, "DCGM_FI_DEV_GPU_TEMP_CELSIUS"), count(8, "DCGM_FI_DEV_FB_FREE_BYTES"), up)
}
