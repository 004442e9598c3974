package fake

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process applies faults to the process of a World. It is nil if that is not allowed.
type process struct {
	born time.Duration // since the exporter's start

	mu     sync.Mutex
	random *rand.Rand
	leaked [][]byte
	held   []int // descriptors
}

// Limits on what a fault may use up.
const (
	maxLeakMiB     = 4 << 10
	maxDescriptors = 1024
)

func newProcess(born time.Duration, seed uint64) *process {
	return &process{born: born, random: rand.New(rand.NewPCG(seed, uint64(born)))} //nolint:gosec // junk, not a secret
}

// hit reports whether f begins in this process now.
func (p *process) hit(f *fault, elapsed time.Duration) bool {
	if !f.active(elapsed) {
		return false
	}
	at, _ := f.begin()
	return !(f.Once && p.born > at)
}

// suffer applies the current faults to the process. Every call into the simulated library begins with it.
func (w *World) suffer(elapsed time.Duration) {
	p, faults := w.process, *w.faults.Load()
	if p == nil || len(faults) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range faults {
		if !p.hit(f, elapsed) {
			if f.Kind == FDs {
				p.closeAll()
			}
			continue
		}
		switch f.Kind {
		case Crash:
			die(syscall.SIGSEGV)
		case Abort:
			const text = "simulated.cc:42: int rsmi_read(char*, size_t): Assertion `used < size' failed."
			_, _ = os.Stderr.WriteString(cmp.Or(f.Message, text) + "\n")
			die(syscall.SIGABRT)
		case Exit:
			syscall.Exit(f.Status)
		case Leak:
			p.leak(f, elapsed)
		case FDs:
			p.exhaust()
		case Garbage:
			p.babble()
		case Scribble:
			p.scribble()
		}
	}
}

// die ends the process like a signal inside a C library: the runtime prints its state and exits. It does not return.
func die(s syscall.Signal) {
	_ = syscall.Kill(syscall.Getpid(), s)
	select {} // until it arrives; held locks stay held
}

// leak allocates the memory that f has leaked until now and keeps it.
func (p *process) leak(f *fault, elapsed time.Duration) {
	const chunk = 1 << 20
	at, _ := f.begin()
	lasted := elapsed - max(at, p.born)
	due := min(int(lasted.Seconds()*float64(f.Rate)), maxLeakMiB)
	for len(p.leaked) < due {
		b := make([]byte, chunk)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1 // resident from now on
		}
		p.leaked = append(p.leaked, b)
	}
}

// exhaust opens descriptors until none is left. It lowers the limit first, which may be a million.
func (p *process) exhaust() {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err == nil && limit.Cur > maxDescriptors {
		limit.Cur = maxDescriptors
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	}
	for {
		fd, err := syscall.Open(os.DevNull, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err != nil {
			return
		}
		p.held = append(p.held, fd)
	}
}

func (p *process) closeAll() {
	for _, fd := range p.held {
		_ = syscall.Close(fd)
	}
	p.held = nil
}

// spin keeps a core busy while f lasts.
func (w *World) spin(f *fault) {
	for w.process != nil && w.process.hit(f, w.elapsed()) {
		select {
		case <-w.released:
			return
		default:
		}
	}
}

// babble writes junk to every Unix socket of the process, like stray writes of a library. It never waits for a reader.
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

// scribble overwrites random words and the headers of the process's shared memory, different ones on each call. It writes
// through the kernel, which knows the mappings; a stray pointer would have the same effect.
func (p *process) scribble() {
	maps, err1 := os.ReadFile("/proc/self/maps")
	mem, err2 := os.OpenFile("/proc/self/mem", os.O_WRONLY, 0)
	if err1 != nil || err2 != nil {
		return
	}
	defer func() { _ = mem.Close() }()
	word := make([]byte, 8)
	for line := range strings.Lines(string(maps)) {
		var start, end uint64
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &start, &end, &mode); err != nil || mode != "rw-s" || !strings.Contains(line, "/memfd:") {
			continue
		}
		words := (end - start) / 8
		for i := range min(words, 1024) {
			at := p.random.Uint64N(words)
			if i < 16 {
				at = i
			}
			p.fill(word)
			_, _ = mem.WriteAt(word, int64(start+8*at))
		}
	}
}

// fill makes junk: noise, or bytes that read as tiny or huge numbers.
func (p *process) fill(b []byte) {
	kind := p.random.IntN(4)
	for i := range b {
		switch noise := byte(p.random.Uint32()); {
		case kind == 0 && i > 0:
			b[i] = 0
		case kind == 1:
			b[i] = 0xff
		default:
			b[i] = noise
		}
	}
}
