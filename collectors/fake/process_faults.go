package fake

import (
	"cmp"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// process applies faults to the current process. It is nil if Options.Isolated is not set.
type process struct {
	born time.Duration // since the exporter's start

	mu     sync.Mutex
	random *rand.Rand
	leaked [][]byte
}

// maxLeakMiB bounds the memory that a fault leaks.
const maxLeakMiB = 4 << 10

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

// suffer applies the current faults to the process. Every call of the simulated library calls it first.
func (w *World) suffer(elapsed time.Duration) {
	p, faults := w.process, *w.faults.Load()
	if p == nil || len(faults) == 0 {
		return
	}
	if !p.mu.TryLock() { // a call that leaks holds up no other call, however slowly the kernel gives memory
		return
	}
	defer p.mu.Unlock()
	for _, f := range faults {
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
		case Garbage:
			p.babble()
		}
	}
}

// die ends the process as a signal inside a C library does: the runtime prints its state and exits. It does not return.
func die(s syscall.Signal) {
	_ = syscall.Kill(syscall.Getpid(), s)
	select {} // until the signal arrives, without releasing locks
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
			b[i] = 1 // makes the page resident
		}
		p.leaked = append(p.leaked, b)
	}
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

// babble writes junk to every Unix socket of the process, like stray writes of a library. It does not block.
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

// fill fills b with noise, or with bytes that decode to tiny or huge numbers.
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
