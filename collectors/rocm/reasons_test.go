package rocm

import (
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector/collectortest"
)

func TestReasons(t *testing.T) {
	csv := []string{
		"DCGM_FI_DEV_GPU_TEMP, gauge, t", "DCGM_FI_DEV_POWER_USAGE, gauge, p", "DCGM_FI_DEV_FAN_SPEED, gauge, f", "DCGM_FI_DEV_XID_ERRORS, gauge, x",
		"DCGM_FI_PROF_SM_ACTIVE, gauge, s", "DCGM_FI_PROF_PCIE_TX_BYTES, counter, b", "DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, e", "nvidia_gpu_jpeg_busy_ratio, gauge, j",
	}
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.RX7900, GPUs: 1})
	f := func(o *opened, name, want string) {
		t.Helper()
		got := collectortest.ReasonOf(t, o.sources[0], o.rows[0], 0, name)
		testkit.ErrorIf(t, !strings.HasPrefix(got, want) || want == "" && got != "", "%s: %q, want %q", name, got, want)
	}
	o := mustOpen(t, Options{Root: tree.Root}, list(t, csv...))
	o.sample()
	f(o, "DCGM_FI_DEV_GPU_TEMP", "")
	f(o, "DCGM_FI_DEV_POWER_USAGE", "")
	f(o, "DCGM_FI_DEV_XID_ERRORS", "unsupported: XIDs are NVIDIA's")
	f(o, "DCGM_FI_PROF_SM_ACTIVE", "unsupported: the amdgpu driver does not have it")
	f(o, "nvidia_gpu_jpeg_busy_ratio", "unsupported: only NVIDIA GPUs have it")
	tree.GPUs[0].Set(t, "power/runtime_status", "suspended\n")
	o.sample()
	f(o, "DCGM_FI_DEV_GPU_TEMP", "blank: the GPU is suspended and is not woken to be read")
	f(o, "DCGM_FI_DEV_XID_ERRORS", "unsupported: XIDs are NVIDIA's")
}

// TestReasonsWithoutPermission checks the reason of a file that this user must not read.
func TestReasonsWithoutPermission(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI250X, GPUs: 1})
	const key, limit = "hwmon/power1_cap", "DCGM_FI_DEV_POWER_MGMT_LIMIT"
	must(t, syscall.Chmod(tree.GPUs[0].Path(key), 0))
	withoutOverride(t)
	o := mustOpen(t, Options{Root: tree.Root}, list(t, limit+", gauge, p", "DCGM_FI_DEV_GPU_TEMP, gauge, t"))
	o.sample()
	got, want := collectortest.ReasonOf(t, o.sources[0], o.rows[0], 0, limit), "permission: this process may not read hwmon power1_cap of the GPU"
	testkit.ErrorIf(t, !strings.HasPrefix(got, want), "%q, want %q", got, want)
}

// withoutOverride drops root's right to read any file from this thread, which ends with the test.
func withoutOverride(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	must(t, unix.Capget(&header, &sets[0]))
	sets[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
	must(t, unix.Capset(&header, &sets[0]))
}
