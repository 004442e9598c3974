package supervisor

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"
)

// Capabilities are taken from a process whose children need them and that itself does
// not: the one that speaks HTTP.
//
// Only the effective set is lowered, on every thread. The permitted and the
// bounding set, and the ambient one, stay, for three reasons. A child that is
// started later gets its effective set at exec: as root from the bounding set,
// otherwise from file or ambient capabilities. With no_new_privs
// (allowPrivilegeEscalation: false in Kubernetes) exec grants nothing that was
// not permitted before, root or not. And a process whose permitted set grows at
// exec loses its parent-death signal, by which children end with their parent.
//
// The kernel's checks ask for effective capabilities only, so a file or a socket
// opened by mistake is refused. It is no sandbox: code that an attacker runs
// inside the process can raise the set again.

// Capabilities is a set of capabilities, bit n for number n, as in /proc/self/status.
type Capabilities uint64

// String gives the set as /proc does; capsh --decode names the bits.
func (s Capabilities) String() string { return fmt.Sprintf("%016x", uint64(s)) }

// DropCapabilities lowers the effective capabilities of every thread, those of C libraries
// included, to nothing, and returns what there was. Threads that start later
// inherit that; programs that are started later do not, see above. It needs no
// privilege itself. Where there is nothing to drop it does nothing.
//
// Call it before a foreign library has started threads that block signals: in a
// program with cgo each thread is reached by a signal.
func DropCapabilities() (Capabilities, error) {
	was, err := getCapabilities()
	if err != nil {
		return 0, fmt.Errorf("read capabilities: %w", err)
	}
	if was.effective == 0 {
		return 0, nil
	}
	now := was
	now.effective = 0
	if err := now.set(); err != nil {
		return 0, fmt.Errorf("drop effective capabilities: %w", err)
	}
	if err := verifyDropped(); err != nil {
		return 0, fmt.Errorf("drop effective capabilities: %w", err)
	}
	return was.effective, nil
}

// capabilitySets are the three sets that capset replaces as a whole.
type capabilitySets struct{ effective, permitted, inheritable Capabilities }

// words is how many structs of 32 capabilities version 3 of the call has.
const words = 2

func getCapabilities() (capabilitySets, error) {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [words]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return capabilitySets{}, os.NewSyscallError("capget", err)
	}
	var c capabilitySets
	for i, d := range data {
		c.effective |= Capabilities(d.Effective) << (32 * i)
		c.permitted |= Capabilities(d.Permitted) << (32 * i)
		c.inheritable |= Capabilities(d.Inheritable) << (32 * i)
	}
	return c, nil
}

// set replaces the sets on all threads. capset itself knows only the calling one,
// and syscall.AllThreadsSyscall refuses where there is cgo; psx is what libcap has
// for that, and without cgo the same as the standard library.
func (c capabilitySets) set() error {
	// On the heap, for psx gives the addresses to other threads.
	head := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := new([words]unix.CapUserData)
	for i := range data {
		data[i] = unix.CapUserData{
			Effective:   uint32(c.effective >> (32 * i)),
			Permitted:   uint32(c.permitted >> (32 * i)),
			Inheritable: uint32(c.inheritable >> (32 * i)),
		}
	}
	_, _, errno := psx.Syscall3(unix.SYS_CAPSET, uintptr(unsafe.Pointer(head)), uintptr(unsafe.Pointer(data)), 0)
	runtime.KeepAlive(head)
	runtime.KeepAlive(data)
	if errno != 0 {
		return os.NewSyscallError("capset", errno)
	}
	return nil
}

// verifyDropped looks whether any thread was missed.
func verifyDropped() error {
	tasks, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		return err
	}
	for _, path := range tasks {
		status, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // has ended meanwhile
		}
		if err != nil {
			return err
		}
		if left, err := effectiveOf(status); err != nil || left != 0 {
			return errors.Join(fmt.Errorf("%s: %s is left", path, left), err)
		}
	}
	return nil
}

// effectiveOf reads a status file of /proc.
func effectiveOf(status []byte) (Capabilities, error) {
	lines := bufio.NewScanner(bytes.NewReader(status))
	for lines.Scan() {
		if hex, ok := bytes.CutPrefix(lines.Bytes(), []byte("CapEff:\t")); ok {
			n, err := strconv.ParseUint(string(hex), 16, 64)
			return Capabilities(n), err
		}
	}
	return 0, errors.New("no line CapEff")
}
