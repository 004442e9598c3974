package fake

import (
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"
)

// process is what faults do to the process in which a World lives. It is nil
// where they must not.
type process struct {
	born time.Duration // since the exporter's start

	mu     sync.Mutex
	random *rand.Rand
	leaked map[*fault][][]byte
	held   map[*fault][]int // descriptors
}

// Bounds of what a fault may take from the machine.
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

// hit reports whether f befalls this process now.
func (p *process) hit(f *fault, elapsed time.Duration) bool {
	if !f.active(elapsed) {
		return false
	}
	at, _ := f.begin()
	return !(f.Once && p.born > at)
}

// suffer does what the faults of this time do to the process. Every call into
// the simulated library begins with it.
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
			_, _ = os.Stderr.WriteString(messageOr(f.Message, text) + "\n")
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

// die ends the process as a signal inside a C library does: the runtime writes
// what it knows and exits. It does not return.
func die(s syscall.Signal) {
	_ = syscall.Kill(syscall.Getpid(), s)
	select {} // until it arrives; a lock that is held stays so
}

// leak takes what f has cost this process until now, and keeps it.
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

// exhaust opens descriptors until there are none. The limit is lowered first:
// that of a machine can be a million.
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
