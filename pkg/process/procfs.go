package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
)

// errGone says that there is no such process.
var errGone = errors.New("no such process")

// procfs reads files of processes. It belongs to one goroutine.
type procfs struct {
	root string // "/proc"
	buf  []byte // of the last read
	path []byte
}

// most bounds a file: 14 hierarchies with long paths are 5 KiB.
const most = 32 << 10

func newProcfs(root string) *procfs {
	return &procfs{root: root, buf: make([]byte, most), path: make([]byte, 0, len(root)+32)}
}

// file returns the content of <root>/<pid>/<name>, valid until the next call. A
// file that is longer than the buffer is cut behind its last whole line.
// Errors: errGone; others of the kernel.
func (p *procfs) file(pid int, name string) ([]byte, error) {
	p.path = append(append(p.path[:0], p.root...), '/')
	p.path = strconv.AppendInt(p.path, int64(pid), 10)
	p.path = append(append(p.path, '/'), name...)
	n, err := readFile(string(p.path), p.buf)
	if err != nil {
		return nil, err
	}
	if n == len(p.buf) {
		return p.buf[:bytes.LastIndexByte(p.buf, '\n')+1], nil
	}
	return p.buf[:n], nil
}

// start returns when a process started, in ticks since the machine's start. With
// the number it identifies the process.
func (p *procfs) start(pid int) (uint64, error) {
	file, err := p.file(pid, "stat")
	if err != nil {
		return 0, err
	}
	if start, ok := parseStart(file); ok {
		return start, nil
	}
	return 0, fmt.Errorf("read state of process %d: %q has no time of start", pid, file[:min(len(file), 80)])
}

// ticksPerSecond is USER_HZ, which is 100 on all that Go runs on.
const ticksPerSecond = 100

// parseStart reads field 22 of /proc/<pid>/stat (proc_pid_stat(5)). The second
// is a name in parentheses that can hold any byte, parentheses and spaces too.
func parseStart(stat []byte) (uint64, bool) {
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 {
		return 0, false
	}
	rest := stat[i+1:]
	for range 19 { // fields 3 to 21
		rest = bytes.TrimLeft(rest, " ")
		i := bytes.IndexByte(rest, ' ')
		if i < 0 {
			return 0, false
		}
		rest = rest[i:]
	}
	rest = bytes.TrimLeft(rest, " ")
	n, v := 0, uint64(0)
	for n < len(rest) && n < 19 && rest[n] >= '0' && rest[n] <= '9' {
		v = v*10 + uint64(rest[n]-'0')
		n++
	}
	return v, n > 0 && (n == len(rest) || rest[n] == ' ' || rest[n] == '\n')
}

// The inode numbers of the machine's first namespaces, which the kernel has
// fixed (PROC_PID_INIT_INO and PROC_CGROUP_INIT_INO, include/linux/proc_ns.h).
const (
	firstPIDNamespace    = "pid:[4026531836]"
	firstCgroupNamespace = "cgroup:[4026531835]"
)

// namespaces tells whether we have the PID and cgroup namespaces of the machine.
func (p *procfs) namespaces() (pid string, nestedCgroup bool, err error) {
	pid, err = os.Readlink(p.root + "/self/ns/pid")
	if err != nil {
		return "", false, fmt.Errorf("read own PID namespace: %w", err)
	}
	group, err := os.Readlink(p.root + "/self/ns/cgroup")
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // kernels before 4.6 have none
		return "", false, fmt.Errorf("read own cgroup namespace: %w", err)
	}
	return pid, err == nil && group != firstCgroupNamespace, nil
}
