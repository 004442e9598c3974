package ring

import (
	"errors"
	"fmt"
	"os"
	"runtime"
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
// The garbage collector unmaps it after the Region becomes unreachable. Words does not count as a reference, because the
// memory is not Go's. To pass the words on, pass the Region along (Ring.Keep).
type Region struct {
	words []atomic.Uint64
	bytes []byte // the same memory
	file  *os.File
}

// CreateRegion creates a Region of the given number of words, all 0, and maps it for reading and writing. Its
// descriptor is close-on-exec and stays open until CloseFD, or until the garbage collector finds the end.
func CreateRegion(words int) (*Region, error) {
	if words <= 0 || words > MaxRegionWords {
		return nil, fmt.Errorf("create shared memory: %d words, want 1 to %d", words, MaxRegionWords)
	}
	f, err := create(words * wordBytes)
	if err != nil {
		return nil, fmt.Errorf("create shared memory of %d bytes: %w", words*wordBytes, err)
	}
	r, err := newRegion(f, words)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create shared memory: %w", err), f.Close())
	}
	return r, nil
}

// OpenRegion maps a Region that another process created. It refuses memory without CreateRegion's seals, because that
// could shrink under the reader. OpenRegion owns the descriptor and closes it before it returns, even after an error;
// the mapping does not need it.
func OpenRegion(fd int) (*Region, error) {
	f := os.NewFile(uintptr(fd), "memory")
	if f == nil {
		return nil, fmt.Errorf("open shared memory: %w", os.ErrInvalid)
	}
	defer func() { _ = f.Close() }()
	words, err := inspect(fd)
	var r *Region
	if err == nil {
		r, err = newRegion(f, words)
	}
	if err != nil {
		return nil, fmt.Errorf("open shared memory: %w", err)
	}
	return r, nil
}

func newRegion(f *os.File, words int) (*Region, error) {
	b, shared, err := mapWords(f, words)
	if err != nil {
		return nil, err
	}
	r := &Region{words: shared, bytes: b, file: f}
	runtime.AddCleanup(r, func(b []byte) { _ = unmap(b) }, b)
	return r, nil
}

// Words returns the memory. It is valid while the Region is reachable.
func (r *Region) Words() []atomic.Uint64 { return r.words }

// FD returns the descriptor for the other process.
func (r *Region) FD() int { return int(r.file.Fd()) }

// CloseFD closes the descriptor and keeps the memory.
func (r *Region) CloseFD() error { return r.file.Close() }

// Protect makes the memory read-only in this process; a write crashes the process then. The reading side calls it after
// the header is written.
func (r *Region) Protect() error { return protect(r.bytes) }
