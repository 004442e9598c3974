package privilege

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

// capabilities are the three sets that capset replaces as a whole.
type capabilities struct{ effective, permitted, inheritable Set }

// words is how many structs of 32 capabilities version 3 of the call has.
const words = 2

func get() (capabilities, error) {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [words]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return capabilities{}, os.NewSyscallError("capget", err)
	}
	var c capabilities
	for i, d := range data {
		c.effective |= Set(d.Effective) << (32 * i)
		c.permitted |= Set(d.Permitted) << (32 * i)
		c.inheritable |= Set(d.Inheritable) << (32 * i)
	}
	return c, nil
}

// set replaces the sets on all threads. capset itself knows only the calling one,
// and syscall.AllThreadsSyscall refuses where there is cgo; psx is what libcap has
// for that, and without cgo the same as the standard library.
func (c capabilities) set() error {
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

// verify looks whether any thread was missed.
func verify() error {
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
func effectiveOf(status []byte) (Set, error) {
	lines := bufio.NewScanner(bytes.NewReader(status))
	for lines.Scan() {
		if hex, ok := bytes.CutPrefix(lines.Bytes(), []byte("CapEff:\t")); ok {
			n, err := strconv.ParseUint(string(hex), 16, 64)
			return Set(n), err
		}
	}
	return 0, errors.New("no line CapEff")
}
