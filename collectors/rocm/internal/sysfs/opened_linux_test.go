package sysfs

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/internal/testkit"
)

// watch reports which files below a directory are opened.
type watch struct {
	t    *testing.T
	fd   int
	dirs map[int32]string
}

func newWatch(t *testing.T, root string) *watch {
	t.Helper()
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	must(t, err)
	t.Cleanup(func() { syscall.Close(fd) })
	w := &watch{t: t, fd: fd, dirs: map[int32]string{}}
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		wd, err := syscall.InotifyAddWatch(fd, path, syscall.IN_OPEN|syscall.IN_ONLYDIR)
		w.dirs[int32(wd)] = path
		return err
	})
	must(t, err)
	return w
}

// opened returns the names of the files that were opened since the last call.
func (w *watch) opened() []string {
	w.t.Helper()
	var list []string
	buf := make([]byte, 1<<20)
	for {
		n, err := syscall.Read(w.fd, buf)
		if err == syscall.EAGAIN {
			return list
		}
		testkit.Must(w.t, err)
		for b := buf[:n]; len(b) > 0; {
			mask, size := binary.NativeEndian.Uint32(b[4:]), binary.NativeEndian.Uint32(b[12:])
			testkit.FatalIf(w.t, mask&syscall.IN_Q_OVERFLOW != 0, "too many files were opened")
			if name := string(bytes.TrimRight(b[16:16+size], "\x00")); name != "" && mask&syscall.IN_ISDIR == 0 {
				list = append(list, name)
			}
			b = b[16+size:]
		}
	}
}

// TestOpened checks that Read never opens files whose reading has side effects: reading clears xgmi_error, and pcie_bw
// takes a second. Later ticks open no file at all.
func TestOpened(t *testing.T) {
	f := open(t, rocmtest.Options{GPUs: 2}, 0)
	w := newWatch(t, f.tree.Sys())
	find(t, f.tree)
	f.h.Probe()
	f.read()
	m := new(gpumetrics.Metrics)
	testkit.FatalIf(t, f.h.Suspended() || f.h.Metrics(m) != nil || !f.h.HasBus(), "not read")
	got := w.opened()
	for _, name := range []string{"xgmi_error", "pcie_bw", "kfd", "pp_power_profile_mode", "rom", "config"} {
		testkit.ErrorIf(t, slices.Contains(got, name), "%s was opened", name)
	}
	testkit.ErrorIf(t, !slices.Contains(got, "gpu_busy_percent"), "the watch does not work: %v", got)
	f.read()
	testkit.FatalIf(t, f.h.Suspended() || f.h.Metrics(m) != nil, "not read")
	again := w.opened()
	testkit.ErrorIf(t, len(again) > 0, "a tick opens %v", again)
	_, _, err := f.h.Bus()
	testkit.Must(t, err)
	testkit.Equal(t, "Bus opens", []string{"pcie_bw"}, w.opened())
}

// TestSuspendedIsNotWoken checks that Find and Suspended read no file for which the driver must wake a suspended board.
func TestSuspendedIsNotWoken(t *testing.T) {
	f := open(t, rocmtest.Options{Model: rocmtest.RX7900, GPUs: 1}, 0)
	f.tree.GPUs[0].Set(t, "power/runtime_status", "suspended\n")
	w := newWatch(t, f.tree.Sys())
	find(t, f.tree)
	f.h.Probe()
	testkit.FatalIf(t, !f.h.Suspended(), "not suspended")
	// The driver or PCI keeps these files in memory.
	harmless := []string{
		"vendor", "device", "revision", "unique_id", "serial_number", "vbios_version", "product_name", "product_number", "uevent", "version",
		"current_compute_partition", "current_memory_partition", "name", "in1_label", "temp1_label", "temp2_label", "temp3_label",
		"gpu_id", "properties", "runtime_status",
	}
	for _, name := range w.opened() {
		testkit.ErrorIf(t, !slices.Contains(harmless, name), "%s was opened", name)
	}
}
