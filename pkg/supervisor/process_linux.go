package supervisor

import (
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// childAttributes put a child into a process group of its own, with what its library
// starts, and end it with this process.
var childAttributes = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}

// becomeReaper makes this process the parent of what its children leave behind, so
// that reapGroup finds it.
func becomeReaper() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // without it, init reaps
}

// killGroup ends a child and the processes that it or its library started.
func killGroup(pid int) { _ = unix.Kill(-pid, unix.SIGKILL) }

// reapGroup ends and reaps what is left of the group of a child that is gone.
func reapGroup(pid int) {
	for range 50 {
		killGroup(pid)
		got, err := unix.Wait4(-pid, nil, unix.WNOHANG, nil)
		switch {
		case err == unix.EINTR || got > 0:
		case err != nil:
			return // ECHILD: none is left
		default:
			time.Sleep(10 * time.Millisecond) // it is being killed
		}
	}
}

// passed are the beginnings of the names of environment variables that a vendor's
// library, the C library or Go's runtime may need. A child gets no others.
var passed = []string{
	"PATH=", "HOME=", "TMPDIR=", "TZ=", "LANG=", "LC_", "LD_", "GODEBUG=", "GOTRACEBACK=", "GOMAXPROCS=", "GOMEMLIMIT=", "GOGC=", "GOCOVERDIR=",
	"NVIDIA_", "CUDA_", "NVML_", "DCGM_", "NV_", "__NVML", "ROCM_", "ROCR_", "RSMI_", "AMDSMI_", "HSA_", "HIP_", "WARPGAUGE_", "SIMULATED_",
}

// environment returns the variables that a child gets.
func environment(all []string) []string {
	out := []string{}
	for _, v := range all {
		for _, p := range passed {
			if strings.HasPrefix(v, p) {
				out = append(out, v)
				break
			}
		}
	}
	return out
}
