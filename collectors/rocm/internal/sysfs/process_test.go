package sysfs

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"warpgauge/collectors/rocm/rocmtest"
)

// A driver that does not show the compute units of a process leaves their sum
// unknown, and the rest known. A queue alone makes a process count.
func TestProcessWithoutUnits(t *testing.T) {
	f := open(t, rocmtest.Options{GPUs: 1}, 0)
	f.tree.Start(t, rocmtest.Process{PID: 7, Uses: []rocmtest.Use{{VRAM: 5000, CUs: 9}}})
	id := strconv.FormatUint(f.tree.GPUs[0].Instances[0].KFD, 10)
	dir := filepath.Join(f.tree.Path(processDir), "7")
	must(t, os.RemoveAll(filepath.Join(dir, "stats_"+id)))
	f.read()
	f.want(Processes, 0, 1)
	f.want(ProcessMemory, 0, 5000)
	f.want(ProcessUnits, 0, nan)
	must(t, os.WriteFile(filepath.Join(dir, "vram_"+id), []byte("0\n"), 0o644))
	f.later()
	f.want(Processes, 0, 1)
	f.want(ProcessMemory, 0, 0)
	must(t, os.RemoveAll(filepath.Join(dir, "queues")))
	f.later()
	f.want(Processes, 0, 0)
	f.want(ProcessUnits, 0, 0)
}
