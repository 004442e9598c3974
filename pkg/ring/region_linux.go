package ring

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// seals lists the seals that OpenRegion requires. F_SEAL_SEAL prevents a later seal against writing, which would crash
// the writer.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// create returns sealed memory with size bytes.
func create(size int) (*os.File, error) {
	fd, err := memfd()
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "memory")
	if err := prepare(fd, size); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// memfd first asks for memory that cannot be executed. Linux 6.3 and later knows the flag and, with
// vm.memfd_noexec=2, requires it; older kernels answer EINVAL.
func memfd() (int, error) {
	const name, flags = "warpgauge-ring", unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return -1, os.NewSyscallError("memfd_create", err)
	}
	return fd, nil
}

func prepare(fd, size int) error {
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return os.NewSyscallError("ftruncate", err)
	}
	// The kernel creates a missing page when it is touched, and sends SIGBUS if there is no memory. So create all pages now.
	err := unix.Fallocate(fd, 0, 0, int64(size))
	for errors.Is(err, unix.EINTR) { // by a signal of the Go runtime
		err = unix.Fallocate(fd, 0, 0, int64(size))
	}
	if err != nil {
		return os.NewSyscallError("fallocate", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return os.NewSyscallError("fcntl F_ADD_SEALS", err)
	}
	return nil
}

// inspect returns the size, in words, of another process's memory.
func inspect(fd int) (words int, err error) {
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return 0, os.NewSyscallError("fcntl F_GET_SEALS", err)
	}
	if got&seals != seals || got&unix.F_SEAL_WRITE != 0 {
		return 0, fmt.Errorf("seals are %#x, want %#x and none against writing", got, seals)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, os.NewSyscallError("fstat", err)
	}
	if st.Size <= 0 || st.Size > MaxRegionWords*wordBytes || st.Size%wordBytes != 0 {
		return 0, fmt.Errorf("size is %d bytes, want a multiple of %d up to %d", st.Size, wordBytes, MaxRegionWords*wordBytes)
	}
	return int(st.Size / wordBytes), nil
}

func mapWords(f *os.File, words int) ([]byte, []atomic.Uint64, error) {
	b, err := unix.Mmap(int(f.Fd()), 0, words*wordBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, os.NewSyscallError("mmap", err)
	}
	// A mapping starts on a page, so words are aligned, and atomic.Uint64 is a uint64.
	return b, unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(b))), words), nil
}

func protect(b []byte) error { return os.NewSyscallError("mprotect", unix.Mprotect(b, unix.PROT_READ)) }
func unmap(b []byte) error   { return os.NewSyscallError("munmap", unix.Munmap(b)) }
