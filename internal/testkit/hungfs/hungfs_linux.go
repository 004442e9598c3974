// Package hungfs simulates, in tests, a network file system whose server does not answer.
package hungfs

import (
	"fmt"
	"sync"
	"syscall"
	"testing"

	"warpgauge/internal/testkit/programtest"
)

// Mount mounts a file system whose server never answers on dir. fail makes all waiting calls fail; unmount unmounts
// it. The end of the test does both.
func Mount(tb testing.TB, dir string) (fail, unmount func()) {
	tb.Helper()
	const need = "a file system that hangs"
	fd, err := syscall.Open("/dev/fuse", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		programtest.Missing(tb, need, "open /dev/fuse: %v", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)
	if err := syscall.Mount("warpgauge-test", dir, "fuse", 0, options); err != nil {
		_ = syscall.Close(fd) // nothing was written
		programtest.Missing(tb, need, "mount: %v", err)
	}
	fail = sync.OnceFunc(func() { _ = syscall.Close(fd) }) // waiting calls get ENOTCONN
	unmount = sync.OnceFunc(func() {
		fail()
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			tb.Errorf("unmount %q: %v", dir, err)
		}
	})
	tb.Cleanup(unmount)
	return fail, unmount
}
