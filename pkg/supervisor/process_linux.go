package supervisor

import (
	"slices"
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

// passed are the beginnings of the names of environment variables that the C library, Go's
// runtime or the exporter itself may need. A child gets these and its library's.
var passed = []string{
	"PATH=", "HOME=", "TMPDIR=", "TZ=", "LANG=", "LC_", "LD_", "GODEBUG=", "GOTRACEBACK=", "GOMAXPROCS=", "GOMEMLIMIT=", "GOGC=", "GOCOVERDIR=",
	"WARPGAUGE_", "SIMULATED_",
}

// environment returns the variables that a child gets: library's begin the names of those
// that only its library may need.
func environment(all, library []string) []string {
	out := []string{}
	for _, v := range all {
		if slices.ContainsFunc(slices.Concat(passed, library), func(p string) bool { return strings.HasPrefix(v, p) }) {
			out = append(out, v)
		}
	}
	return out
}
