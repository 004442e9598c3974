package supervisor

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// childAttributes make a child the leader of a session and process group with what its library
// starts, and end it with this process.
var childAttributes = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}

// becomeReaper makes this process the parent of what its children leave behind, so
// that endLeftovers finds it.
func becomeReaper() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // without it, init reaps
}

// killGroup ends a child and the processes of its group.
func killGroup(pid int) { _ = unix.Kill(-pid, unix.SIGKILL) }

// living are the numbers of all children in service, which belong to the process and not to one
// supervisor. They are not asked for their environment, which could wait for a driver that hangs.
var living sync.Map

// markVariable is set in the environment of each child, with a value of its own. What its library
// starts inherits it.
const markVariable = "CHILD_OF_WARPGAUGE="

// leftoverPatience is how long processes that were left behind may take to end. One that waits in
// the driver does not end, and reading its environment may wait for the same.
const leftoverPatience = time.Second

// endLeftovers ends and reaps the processes that a child which is gone or its library has
// started: those of its session, and those that have left it (setsid, daemon(3)) and have its
// mark. What this process has started otherwise, or another child has left, stays. It returns how
// many it has ended, -1 if some do not end.
func endLeftovers(child int, mark string) int {
	done := make(chan int, 1)
	go func() { done <- endAll(child, mark) }()
	select {
	case n := <-done:
		return n
	case <-time.After(leftoverPatience):
		return -1
	}
}

func endAll(child int, mark string) (ended int) {
	killGroup(child)
	killed := map[int]bool{}
	for begin := time.Now(); time.Since(begin) < leftoverPatience; time.Sleep(10 * time.Millisecond) {
		found := adopted(child, mark)
		for _, pid := range found {
			killed[pid] = true
		}
		for pid := range killed {
			_ = unix.Kill(pid, unix.SIGKILL)
			if got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); got == pid || err == unix.ECHILD {
				delete(killed, pid)
				ended++
			}
		}
		if len(found)+len(killed) == 0 { // what they had started would be ours now
			return ended
		}
	}
	return -1
}

// adopted returns the processes that have become children of this one although a child which is gone, or its
// library, has started them. It reaps those that have ended before.
func adopted(child int, mark string) (out []int) {
	own, _ := unix.Getsid(0) // of oneself it cannot fail
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		return nil
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // a thread that has ended
		}
		for word := range strings.FieldsSeq(string(text)) {
			pid, err := strconv.Atoi(word)
			session, serr := unix.Getsid(pid)
			switch {
			case err != nil || serr != nil || session == own || pid == child:
				continue // a child of ours has its own session or is in that of this process
			case session != pid:
				if got, _ := unix.Wait4(pid, nil, unix.WNOHANG, nil); got == pid {
					continue
				}
			}
			if _, known := living.Load(pid); !known && (session == child || marked(pid, mark)) {
				out = append(out, pid)
			}
		}
	}
	return out
}

// marked reports whether a process was started with a mark in its environment.
func marked(pid int, mark string) bool {
	const most = 1 << 20
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, most))
	return err == nil && slices.ContainsFunc(bytes.Split(text, []byte{0}), func(v []byte) bool { return string(v) == mark })
}

// passed are the beginnings of the names of environment variables that the C library or Go's
// runtime may need. A child gets these and its library's; its settings are arguments.
var passed = []string{
	"PATH=", "HOME=", "TMPDIR=", "TZ=", "LANG=", "LC_", "LD_", "GODEBUG=", "GOTRACEBACK=", "GOMAXPROCS=", "GOMEMLIMIT=", "GOGC=", "GOCOVERDIR=",
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
