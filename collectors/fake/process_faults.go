package fake

import (
	"bufio"
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
	leaked map[*fault][][]byte
	held   map[*fault][]int // descriptors
}

// Limits on what a fault may use up.
const (
	maxLeakMiB     = 4 << 10
	maxDescriptors = 1024
)

func newProcess(born time.Duration, seed uint64) *process {
	return &process{
		born: born, random: rand.New(rand.NewPCG(seed, uint64(born))), //nolint:gosec // junk, not a secret
		leaked: map[*fault][][]byte{}, held: map[*fault][]int{},
	}
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
func (p *process) suffer(t *timeline, elapsed time.Duration) {
	if p == nil || len(t.faults) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range t.faults {
		if f.Kind == FDs && !p.hit(f, elapsed) {
			p.closeAll(f)
		}
		if !p.hit(f, elapsed) {
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
			p.exhaust(f)
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
	for len(p.leaked[f]) < due {
		b := make([]byte, chunk)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1 // resident from now on
		}
		p.leaked[f] = append(p.leaked[f], b)
	}
}

// exhaust opens descriptors until none is left. It lowers the limit first, which may be a million.
func (p *process) exhaust(f *fault) {
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
		p.held[f] = append(p.held[f], fd)
	}
}

func (p *process) closeAll(f *fault) {
	for _, fd := range p.held[f] {
		_ = syscall.Close(fd)
	}
	delete(p.held, f)
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

// scribble overwrites random words of the process's shared memory, different ones on each call. It writes through the
// kernel, which knows the mappings; a stray pointer would have the same effect.
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
		// Headers are at the start.
		for i := range min(words, 16) {
			p.fill(word)
			_, _ = mem.WriteAt(word, int64(r.start+8*i))
		}
	}
}

// fill makes junk: noise, or bytes that read as tiny or huge numbers.
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
