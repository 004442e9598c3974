package main

import "testing"

func TestCheckGuard(t *testing.T) {
	const csv = "DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_DEV_POWER_USAGE, gauge, p\n"
	good := tempFile(t, "good.csv", csv)
	bad := tempFile(t, "bad.csv", "# warpgauge: for=x\n"+csv+"DCGM_FI_PROF_SM_ACTIVE, gauge, x\n")
	config := tempFile(t, "list.yaml", "version: 2\nmetrics:\n  fields:\n  - {name: DCGM_FI_DEV_GPU_TEMP, prometheusType: gauge, help: t}\n  file: /etc/passwd\n")
	options := tempFile(t, "options.yaml", "version: 2\nmetrics:\n  fields:\n  - {name: DCGM_FI_DEV_GPU_TEMP, prometheusType: gauge, help: t}\nserver: {maxConcurrentScrapes: 1}\ncollections:\n- {name: all, every: 10ms, metrics: {include: ['*']}}\n")
	execute(t, nil, simulated("check", "--guard", good)...).Want(t, 0, "0 errors")
	execute(t, nil, simulated("check", "--guard", "--remote-limit=series=15", good)...).Want(t, 1, "16 series", "1 error")
	execute(t, nil, simulated("check", "--guard", bad)...).Want(t, 1, bad+":1: error", bad+":4: error: DCGM_FI_PROF_SM_ACTIVE")
	execute(t, nil, simulated("check", "--guard", config)...).Want(t, 1, "metrics has both file and fields")
	execute(t, nil, simulated("check", "--guard", options)...).Want(t, 1, options+":5: error: server", options+":4: error: DCGM_FI_DEV_GPU_TEMP: the interval 10ms")
	execute(t, nil, simulated("check", "--guard")...).Want(t, 1, "name the FILE")
}
