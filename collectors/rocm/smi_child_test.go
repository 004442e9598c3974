//go:build linux && cgo

package rocm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"warpgauge/collectors/rocm/internal/smi"
	"warpgauge/collectors/rocm/internal/sysfs"
	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/collectors/rocm/rocmtest/smitest"
	"warpgauge/internal/testkit/eventually"
)

// Jobs of a child process.
const (
	childVariable = "WARPGAUGE_SMI_CHILD"
	childHolds    = "holds" // waits inside a call for device 0, holding its lock
)

// child starts this test binary again with the job what, in the directory of the
// library's copy. The command ends with the test or after the patience. It then
// prints its goroutines first.
func child(t *testing.T, lib *smitest.Real, what string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, self, "-test.run=^TestChild$", "-test.v")
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGQUIT) }
	c.WaitDelay = time.Second
	c.Dir = lib.Dir
	c.Env = append(os.Environ(), childVariable+"="+strings.Join(append([]string{what, lib.Path}, args...), " "))
	return c
}

// TestChild is the main function of the processes of child.
func TestChild(t *testing.T) {
	what, ok := os.LookupEnv(childVariable)
	if !ok {
		t.Skip("only for processes that other tests start")
	}
	// A previous child may have been killed while it held the GPU's lock. Before ROCm 6.1.1,
	// rsmi_init then acquires the lock for its thread, and other threads wait for ever. Production
	// starts the library twice to release it (smi.start); this test does not.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f := strings.Fields(what)
	c, err := smi.Open(&smiAPI, f[1])
	must(t, err)
	must(t, c.Must(smiInit, 0))
	fmt.Fprintln(os.Stdout, "asking")
	status := smiCall(c, 0, smiAsk{function: smiTemperature, a: uint32(sysfs.SensorJunction)}, smi.New[[2]uint64]())
	fmt.Fprintln(os.Stdout, "answered", status)
}

// hold starts a process that waits in a call for GPU 0, and returns when the process
// is in the call and holds the GPU's lock.
func hold(t *testing.T, lib *smitest.Real, g *rocmtest.GPU) *exec.Cmd {
	t.Helper()
	fifo := g.FIFO(t, "hwmon/temp2_input")
	t.Cleanup(fifo.Close)
	c := child(t, lib, childHolds)
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "asking" {
	}
	must(t, lines.Err())
	go func() { _, _ = io.Copy(io.Discard, out) }()
	waitOpen(t, c.Process.Pid, g.Path("hwmon/temp2_input"))
	return c
}

// waitOpen waits until the process has opened a file. The library locks the GPU
// before it opens the file.
func waitOpen(t *testing.T, pid int, path string) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	for t.Context().Err() == nil {
		fds, err := os.ReadDir(dir)
		must(t, err)
		for _, fd := range fds {
			if target, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && target == path {
				return
			}
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the process never opens the file")
}

// TestRealLibraryAfterAKilledProcess checks that no thread of the next process waits
// for the GPU's lock of a process that was killed inside a call.
func TestRealLibraryAfterAKilledProcess(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI250X})
	lib := smitest.NewReal(t, tree)
	c := hold(t, lib, tree.GPUs[0])
	must(t, c.Process.Signal(syscall.SIGKILL))
	if err := c.Wait(); err == nil {
		t.Fatal("a killed process ends well")
	}
	tree.GPUs[0].Reset(t, "hwmon/temp2_input")
	lib.Enter(t)
	s, gpus := mustStart(t, tree, lib.Path), boards(t, tree)
	onThreads(t, 8, func() {
		for i, g := range gpus {
			v, err := readAll(s.reader(t, g, sysfs.Reading{Kind: sysfs.Temperature, Index: sysfs.SensorJunction}))
			if want := float64(tree.GPUs[i].State.JunctionC); err != nil || v[0] != want {
				t.Errorf("GPU %d: %v, %v, want %v", i, v, err, want)
			}
		}
	})
}

// onThreads runs f concurrently on n different threads.
func onThreads(t *testing.T, n int, f func()) {
	t.Helper()
	var wg, all sync.WaitGroup
	all.Add(n)
	for range n {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			all.Done()
			all.Wait()
			f()
		})
	}
	wg.Wait()
}

// TestRealLibraryNextToAHolder checks that the start fails after the library's five
// seconds while another process holds a GPU's lock, and works after that process.
func TestRealLibraryNextToAHolder(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the library's five seconds")
	}
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI250X})
	lib := smitest.NewReal(t, tree)
	if smiThreadLocks(lib.Path) {
		t.Skip("the installed library has locks within the process")
	}
	c := hold(t, lib, tree.GPUs[0])
	lib.Enter(t)
	if _, err := startSMI(lib.Path); !errors.Is(err, smiStatus(smiInitError)) || !strings.Contains(err.Error(), "/dev/shm") {
		t.Errorf("startSMI = %v, want status 8 and /dev/shm", err)
	}
	must(t, c.Process.Signal(syscall.SIGKILL))
	if err := c.Wait(); err == nil {
		t.Fatal("a killed process ends well")
	}
	tree.GPUs[0].Reset(t, "hwmon/temp2_input")
	s := mustStart(t, tree, lib.Path)
	mustRead(t, s.reader(t, boards(t, tree)[0], sysfs.Reading{Kind: sysfs.Temperature, Index: sysfs.SensorJunction}))
}
