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

// Region is a block of anonymous memory that two processes share. One writes words, the other reads them. They pass the
// descriptor between them. It has no name, neither in /dev/shm nor in a file system, so nothing is left when the
// processes die.
//
// Apart from the words themselves, neither side can harm the other: the size is sealed, so that a mapped page cannot
// disappear (which would end its reader with SIGBUS), and all pages exist from the beginning, so that a machine short
// of memory fails CreateRegion instead.
//
// Close unmaps it, or the garbage collector after the Region becomes unreachable. Words does not count as a reference,
// because the memory is not Go's. To pass the words on, pass the Region along (Ring.Keep) and let the garbage collector
// find the end; Close is for callers that know that there is no reader.
type Region struct {
	words   []atomic.Uint64
	mapping *mapping
	cleanup runtime.Cleanup
}

// mapping holds the resources to release. It is separate from the Region, so that it can be released after the
// Region is gone.
type mapping struct {
	mu    sync.Mutex
	bytes []byte
	fd    int // -1: closed
}

// CreateRegion creates a Region of the given number of words, all 0, and maps it for reading and writing. Its
// descriptor is close-on-exec and stays open until CloseFD or Close.
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

// OpenRegion maps a Region that another process created. It refuses memory without CreateRegion's seals, because that
// could shrink under the reader. OpenRegion owns the descriptor and closes it before it returns, even after an error;
// the mapping does not need it.
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

// Words returns the memory. It is valid while the Region is reachable and not closed.
func (r *Region) Words() []atomic.Uint64 { return r.words }

// FD returns the descriptor for the other process, or -1 if it is closed.
func (r *Region) FD() int {
	r.mapping.mu.Lock()
	defer r.mapping.mu.Unlock()
	return r.mapping.fd
}

// CloseFD closes the descriptor and keeps the memory. It may be called again.
func (r *Region) CloseFD() error {
	r.mapping.mu.Lock()
	defer r.mapping.mu.Unlock()
	return r.mapping.closeFD()
}

// Protect makes the memory read-only in this process; a write crashes the process then. The reading side calls it after
// the header is written.
func (r *Region) Protect() error {
	r.mapping.mu.Lock()
	defer r.mapping.mu.Unlock()
	if r.mapping.bytes == nil {
		return errors.New("protect shared memory: closed")
	}
	return protect(r.mapping.bytes)
}

// Close closes the descriptor and unmaps the memory. The words must not be used after that, not even to read. It may be
// called again.
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
