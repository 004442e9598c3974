package supervisor

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// childAttributes make a child the leader of a session and process group, which its library's processes join, and end
// the child with this process.
var childAttributes = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}

// killGroup kills a child's process group.
func killGroup(pid int) { _ = unix.Kill(-pid, unix.SIGKILL) }

// living holds the process IDs of all running children. It is package-level, because they belong to the process rather
// than to one supervisor. Their environment is not read, because that could wait for a driver that hangs.
var living sync.Map

// markVariable is set in the environment of each child, with a unique value. Processes that its library starts inherit it.
const markVariable = "CHILD_OF_WARPGAUGE="

// leftoverPatience is how long left-over processes may take to end. A process that waits in the driver does not end,
// and reading its environment may block for the same reason.
const leftoverPatience = time.Second

// endLeftovers ends and reaps the processes that an ended child or its library has started: the processes of its
// session, and those that have left it (setsid, daemon(3)) but have its mark. It spares other processes of this process
// or of other children. It returns the number of ended processes, -1 if some do not end.
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
		if len(found)+len(killed) == 0 { // their own children would be ours by now
			return ended
		}
	}
	return -1
}

// adopted returns the processes that became children of this process because an ended child or its library had started
// them. It reaps those that have already ended.
func adopted(child int, mark string) (out []int) {
	own, _ := unix.Getsid(0)                                // cannot fail for our own process
	lists, _ := filepath.Glob("/proc/self/task/*/children") // fails only for a bad pattern
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for word := range strings.FieldsSeq(string(text)) {
			pid, err := strconv.Atoi(word)
			session, serr := unix.Getsid(pid)
			switch {
			case err != nil || serr != nil || session == own || pid == child:
				continue // our child: it has its own session or this process's session
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

// marked reports whether a process has the mark in its environment.
func marked(pid int, mark string) bool {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return false
	}
	env, err := p.Environ() // at most 1 MiB
	return err == nil && slices.Contains(env, mark)
}

// passed lists the prefixes of environment variables that the C library or Go's runtime may need. A child gets these
// and its library's; its settings are arguments.
var passed = []string{
	"PATH=", "HOME=", "TMPDIR=", "TZ=", "LANG=", "LC_", "LD_", "GODEBUG=", "GOTRACEBACK=", "GOMAXPROCS=", "GOMEMLIMIT=", "GOGC=", "GOCOVERDIR=",
	"MALLOC_",
}

// environment returns the variables for a child. library lists the prefixes of variables that only its library may need.
func environment(all, library []string) []string {
	kept := slices.DeleteFunc(slices.Clone(all), func(v string) bool {
		return !slices.ContainsFunc(slices.Concat(passed, library), func(p string) bool { return strings.HasPrefix(v, p) })
	})
	return append([]string{"MALLOC_ARENA_MAX=1"}, kept...) // with several arenas, libdcgm's threads would each keep buffers of 4 MiB
}
