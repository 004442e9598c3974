package ring

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// MaxRegionWords is the size of the largest Region, 1 GiB.
const MaxRegionWords = 1 << 27

const wordBytes = 8

// Region is a block of anonymous memory that two processes share, mapped into
// this process: words that one writes and the other reads, passed by descriptor.
// It has no name, neither in /dev/shm nor in a file system, so nothing is left
// when the processes die, however they die.
//
// Neither side can harm the other through it, other than by what it writes: the
// size is sealed, so that a page that was there cannot go away (which would end
// the process that reads it with SIGBUS), and all pages exist from the beginning,
// so that a machine short of memory refuses CreateRegion instead.
//
// It is unmapped by Close, or when the Region is no longer reachable. Words
// alone does not count as a reference: the memory is not Go's. To pass the
// words on, pass the Region along (Ring.Keep) and let the garbage collector find
// the end; Close is for callers that know that there is no reader.
type Region struct {
	words   []atomic.Uint64
	mapping *mapping
	cleanup runtime.Cleanup
}

// mapping is what must be given back, apart from the Region, so that it can be
// done after the Region is gone.
type mapping struct {
	mu    sync.Mutex
	bytes []byte
	fd    int // -1: closed
}

// CreateRegion makes a Region of so many words, all 0, and maps it for reading and
// writing. Its descriptor is close-on-exec and stays open until CloseFD or Close.
func CreateRegion(words int) (*Region, error) {
	if words <= 0 || words > MaxRegionWords {
		return nil, fmt.Errorf("create shared memory: %d words, want 1 to %d", words, MaxRegionWords)
	}
	fd, err := create(words * wordBytes)
	if err != nil {
		return nil, fmt.Errorf("create shared memory of %d bytes: %w", words*wordBytes, err)
	}
	r, err := newRegion(fd, words)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create shared memory: %w", err), closeFD(fd))
	}
	return r, nil
}

// OpenRegion maps the Region behind a descriptor that CreateRegion made in another process.
// Unless it is sealed as CreateRegion seals it, it is refused: it could shrink under
// the reader. The descriptor belongs to OpenRegion from now on and is closed before it
// returns, whether it succeeds or not; the mapping needs none.
func OpenRegion(fd int) (*Region, error) {
	words, err := inspect(fd)
	var r *Region
	if err == nil {
		r, err = newRegion(fd, words)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open shared memory: %w", err), closeFD(fd))
	}
	if err := r.CloseFD(); err != nil {
		return nil, errors.Join(fmt.Errorf("open shared memory: %w", err), r.Close())
	}
	return r, nil
}

func newRegion(fd, words int) (*Region, error) {
	m, shared, err := mapWords(fd, words)
	if err != nil {
		return nil, err
	}
	r := &Region{words: shared, mapping: &mapping{bytes: m, fd: fd}}
	r.cleanup = runtime.AddCleanup(r, func(m *mapping) { _ = m.close() }, r.mapping)
	return r, nil
}

// Words is the memory. It is valid as long as the Region can be reached and is
// not closed.
func (r *Region) Words() []atomic.Uint64 { return r.words }

// FD returns the descriptor, to be passed to the other process, or -1 when it is
// closed.
func (r *Region) FD() int {
	r.mapping.mu.Lock()
	defer r.mapping.mu.Unlock()
	return r.mapping.fd
}

// CloseFD closes the descriptor and leaves the memory. It may be called again.
func (r *Region) CloseFD() error {
	r.mapping.mu.Lock()
	defer r.mapping.mu.Unlock()
	return r.mapping.closeFD()
}

// Protect makes the memory readable only, in this process; a write ends it from
// now on. The reading side calls it once the header is written.
func (r *Region) Protect() error {
	r.mapping.mu.Lock()
	defer r.mapping.mu.Unlock()
	if r.mapping.bytes == nil {
		return errors.New("protect shared memory: closed")
	}
	return protect(r.mapping.bytes)
}

// Close closes the descriptor and unmaps the memory. The words must not be
// used after that, not even to read. It may be called again.
func (r *Region) Close() error {
	r.cleanup.Stop()
	r.words = nil
	return r.mapping.close()
}

func (m *mapping) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.closeFD()
	if m.bytes != nil {
		err = errors.Join(err, unmap(m.bytes))
		m.bytes = nil
	}
	return err
}

// closeFD is called with mu held.
func (m *mapping) closeFD() error {
	if m.fd < 0 {
		return nil
	}
	fd := m.fd
	m.fd = -1
	return closeFD(fd)
}
