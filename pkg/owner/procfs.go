package owner

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	linux "github.com/prometheus/procfs"
)

// errGone means that the process does not exist.
var errGone = errors.New("no such process")

// procfs is the path of the files of processes, "/proc". It reads only files that the kernel answers from memory, in a
// bounded length and without a lock that a hung process can hold (stat, cgroup; never cmdline or maps).
type procfs string

// readFile returns the content of a file.
func (p procfs) readFile(name string) ([]byte, error) {
	text, err := os.ReadFile(string(p) + "/" + name)
	if gone(err) {
		return nil, errGone
	}
	return text, err
}

// gone reports whether a process did not exist when a file of it was opened or read.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }

func (p procfs) file(pid int, name string) ([]byte, error) {
	return p.readFile(strconv.Itoa(pid) + "/" + name)
}

// start returns when a process started, in ticks since the machine's start. PID and start identify a process.
func (p procfs) start(pid int) (uint64, error) {
	var stat linux.ProcStat
	files, err := linux.NewFS(string(p))
	if err == nil {
		var process linux.Proc
		if process, err = files.Proc(pid); err == nil {
			stat, err = process.Stat()
		}
	}
	switch {
	case gone(err):
		err = errGone
	case err != nil:
		err = fmt.Errorf("read state of process %d: %w", pid, err)
	}
	return stat.Starttime, err
}

// uptime returns the time since the machine's start; 0 if it cannot be read.
func (p procfs) uptime() time.Duration {
	file, _ := p.readFile("uptime")
	seconds, _, _ := bytes.Cut(file, []byte(" "))
	up, err := strconv.ParseFloat(string(seconds), 64)
	if err != nil {
		return 0
	}
	return time.Duration(up * float64(time.Second))
}

// The inode numbers of the machine's first namespaces, which the kernel has fixed (PROC_PID_INIT_INO and
// PROC_CGROUP_INIT_INO, include/linux/proc_ns.h).
const (
	firstPIDNamespace    = "pid:[4026531836]"
	firstCgroupNamespace = "cgroup:[4026531835]"
)

// self returns our PID namespace and our control groups.
func (p procfs) self() (pid string, own surroundings, err error) {
	pid, err = os.Readlink(string(p) + "/self/ns/pid")
	if err != nil {
		return "", own, fmt.Errorf("read own PID namespace: %w", err)
	}
	group, err := os.Readlink(string(p) + "/self/ns/cgroup")
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // kernels before 4.6 have none
		return "", own, fmt.Errorf("read own cgroup namespace: %w", err)
	}
	nested := err == nil && group != firstCgroupNamespace
	file, err := p.readFile("self/cgroup")
	if err != nil && !errors.Is(err, errGone) { // a kernel without control groups
		return "", own, fmt.Errorf("read own control groups: %w", err)
	}
	return pid, surroundingsOf(file, nested), nil
}

const (
	// startSlack is how long after its sample a process may seem to have started: the sample's time precedes the library call.
	startSlack = 100 * time.Millisecond
	tick       = time.Second / 100 // USER_HZ is 100 on all platforms of Go
)

// locations finds where processes run and caches it. Its size is bounded by the processes of one poll.
type locations struct {
	proc  procfs
	own   surroundings
	known map[int]*located
	round uint64
}

// located is a process with a known location.
type located struct {
	location
	start uint64 // ticks; PID and start identify the process
	name  string // of the command; empty if it could not be read
	round uint64 // last round that needed it
}

func newLocations(root string) *locations {
	return &locations{proc: procfs(root), known: map[int]*located{}}
}

// find returns the location of a process in a sample of the given time, as it was when the process was first seen. If
// the process has ended since the sample, find returns its last known location. It returns errGone for a process that was
// never seen.
func (l *locations) find(pid int, sampled, now time.Time) (*located, error) {
	k := l.known[pid]
	start, err := l.proc.start(pid)
	if up := l.proc.uptime(); err == nil && up != 0 && time.Duration(start)*tick > up-now.Sub(sampled)+startSlack {
		err = errGone // another process, which started after the sample, has its PID now
	}
	if err == nil && (k == nil || k.start != start) {
		var found *located
		if found, err = l.read(pid, start); err == nil {
			k = found
			l.known[pid] = k
		}
	}
	if k == nil {
		return nil, err
	}
	k.round = l.round
	return k, nil
}

var errNoPath = errors.New("no control group")

// read reads the location of the process with that start time.
func (l *locations) read(pid int, start uint64) (*located, error) {
	file, err := l.proc.file(pid, "cgroup")
	if err != nil {
		return nil, err
	}
	at, ok := parseCgroup(file, l.own)
	if !ok {
		return nil, errNoPath
	}
	name, _ := l.proc.file(pid, "comm") // for display
	if again, err := l.proc.start(pid); err != nil || again != start {
		return nil, errGone
	}
	return &located{location: at, start: start, name: string(bytes.TrimSpace(name))}, nil
}
