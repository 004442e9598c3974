package fake

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// babble writes junk to every Unix socket of the process, as stray writes of a
// library do. It never waits for a reader.
func (p *process) babble() {
	junk := make([]byte, 1+p.random.IntN(4096))
	p.fill(junk)
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if name, err := syscall.Getsockname(fd); err == nil {
			if _, unix := name.(*syscall.SockaddrUnix); unix {
				_, _ = syscall.SendmsgN(fd, junk, nil, nil, syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL)
			}
		}
	}
}

// scribble writes junk over the shared memory that the process has mapped: over
// words here and there, so that every call leaves another picture. It goes
// through the kernel, which knows what is mapped; a stray pointer would do the same.
func (p *process) scribble() {
	regions, err := sharedMemory()
	if err != nil {
		return
	}
	mem, err := os.OpenFile("/proc/self/mem", os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer func() { _ = mem.Close() }()
	word := make([]byte, 8)
	for _, r := range regions {
		words := (r.end - r.start) / 8
		for range min(words, 1024) {
			p.fill(word)
			_, _ = mem.WriteAt(word, int64(r.start+8*p.random.Uint64N(words)))
		}
		// Where headers are.
		for i := range min(words, 16) {
			p.fill(word)
			_, _ = mem.WriteAt(word, int64(r.start+8*i))
		}
	}
}

// fill makes junk: noise, or what is read as a tiny or a huge number.
func (p *process) fill(b []byte) {
	switch p.random.IntN(4) {
	case 0:
		clear(b)
		b[0] = byte(p.random.Uint32())
	case 1:
		for i := range b {
			b[i] = 0xff
		}
	default:
		for i := range b {
			b[i] = byte(p.random.Uint32())
		}
	}
}

type region struct{ start, end uint64 }

// sharedMemory finds writable mappings of anonymous files.
func sharedMemory() ([]region, error) {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var out []region
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var r region
		var mode string
		if !strings.Contains(lines.Text(), "/memfd:") {
			continue
		}
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &r.start, &r.end, &mode); err == nil && strings.HasPrefix(mode, "rw-s") && r.end > r.start {
			out = append(out, r)
		}
	}
	return out, lines.Err()
}
