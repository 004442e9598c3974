//go:build linux && cgo

package rocm

import (
	"bufio"
	"cmp"
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

	"warpgauge/collectors/rocm/internal/raw"
	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/collectors/rocm/rocmtest/smitest"
	"warpgauge/pkg/eventually"
)

// What a process does that is a test only by the way it is started.
const (
	childVariable = "WARPGAUGE_SMI_CHILD"
	childAsks     = "asks"  // asks the library, unguarded, for one thing
	childHolds    = "holds" // waits inside a call for device 0, with its lock
)

// child starts this test binary again as what says, in the directory of the
// library's copy. The command is ended with the test, or when patience is lost, and
// then says first where its goroutines are.
func child(t *testing.T, lib *smitest.Real, what string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, self, "-test.run=^TestChild$", "-test.v")
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGQUIT) }
	c.WaitDelay = time.Second
	c.Dir = lib.Dir
	c.Env = append(os.Environ(), childVariable+"="+strings.Join(append([]string{what, lib.Path}, args...), " "))
	return c
}

// TestChild is no test: it is what child starts.
func TestChild(t *testing.T) {
	what, ok := os.LookupEnv(childVariable)
	if !ok {
		t.Skip("started by other tests only")
	}
	// A child before this one may have been killed with the GPU's lock. rsmi_init then
	// takes it over for the thread that calls it, and any other waits for ever, before
	// ROCm 6.1.1: production starts the library twice (smi_start.go), this does not.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f := strings.Fields(what)
	lib, err := loadSMI([]string{f[1]})
	if err != nil {
		t.Fatal(err)
	}
	if s := lib.start(0); s != smiSuccess {
		t.Fatal(s)
	}
	ask := smiAsk{function: smiTemperature, argument: uint32(raw.SensorJunction)}
	if f[0] == childAsks {
		if _, err := fmt.Sscan(f[2], &ask.function); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(f[3], &ask.argument); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Fprintln(os.Stdout, "asking")
	answer := make([]smiAnswer, 1)
	lib.batch(0, []smiAsk{ask}, answer)
	fmt.Fprintln(os.Stdout, "answered", answer[0].status)
}

// The guards are there for a reason: without them the process ends. Where the
// installed library has no asserts, or has learnt, there is nothing to show.
func TestUnguardedLibraryAborts(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI300X})
	lib := smitest.NewReal(t, tree)
	build, err := inspectSMI(lib.Path)
	if err != nil {
		t.Fatal(err)
	}
	if !build.asserts {
		t.Skip("the installed library has no asserts")
	}
	g := tree.GPUs[0]
	f := func(function smiFunction, argument uint32, file, text string) {
		t.Helper()
		g.Set(t, file, text)
		defer g.Reset(t, file)
		said, err := untilAssertion(child(t, lib, childAsks, fmt.Sprint(uint32(function)), fmt.Sprint(argument)))
		if err != nil {
			t.Errorf("%v with %q: %v, want an abort\n%s", function, text, err, said)
		}
	}
	f(smiECCCount, 1, "ras/umc_err_count", "ue: 0\nce: 0\nde: 0\n")
	f(smiECCCount, 1, "ras/umc_err_count", rocmtest.Inaccessible)
	f(smiBadPages, 0, "ras/gpu_vram_bad_pages", "garbage\n")
	f(smiClock, 0, "pp_dpm_sclk", "S: 19Mhz *\n0: 500Mhz\n1: 2100Mhz\n")
}

// untilAssertion runs a command until it says that an assertion has failed, after
// which C's library calls abort and does not come back. What follows is Go's, which
// catches the signal and prints stacks: the command is killed and not waited for.
func untilAssertion(c *exec.Cmd) (said string, err error) {
	out, err := c.StderrPipe()
	if err != nil {
		return "", err
	}
	c.Stdout = c.Stderr
	if err := c.Start(); err != nil {
		return "", err
	}
	var text strings.Builder
	lines := bufio.NewScanner(out)
	asserted := false
	for !asserted && lines.Scan() {
		text.WriteString(lines.Text() + "\n")
		asserted = strings.Contains(lines.Text(), "Assertion")
	}
	_ = c.Process.Kill() // it may have ended
	err = c.Wait()
	if !asserted {
		return text.String(), fmt.Errorf("no assertion has failed: %w", cmp.Or(err, lines.Err(), errors.New("it ended as if nothing were wrong")))
	}
	return text.String(), nil
}

// hold starts a process that waits in a call for GPU 0, and returns when it is
// inside. It holds the GPU's lock then.
func hold(t *testing.T, lib *smitest.Real, g *rocmtest.GPU) *exec.Cmd {
	t.Helper()
	fifo := g.FIFO(t, "hwmon/temp2_input")
	t.Cleanup(fifo.Close)
	c := child(t, lib, childHolds)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "asking" {
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	waitOpen(t, c.Process.Pid, g.Path("hwmon/temp2_input"))
	return c
}

// waitOpen waits until the process has a file open. The library takes the GPU's
// lock before it opens what it reads.
func waitOpen(t *testing.T, pid int, path string) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	for t.Context().Err() == nil {
		fds, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range fds {
			if target, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && target == path {
				return
			}
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the process never opens the file")
}

// A process that is killed inside a call leaves the GPU's lock behind. The next
// one must not wait for it, on any of its threads.
func TestRealLibraryAfterAKilledProcess(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI250X})
	lib := smitest.NewReal(t, tree)
	c := hold(t, lib, tree.GPUs[0])
	if err := c.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err == nil {
		t.Fatal("a killed process ends well")
	}
	tree.GPUs[0].Reset(t, "hwmon/temp2_input")
	lib.Enter(t)
	o := smiOptionsFor(t, tree, lib.Path)
	r := mustOpenSMI(t, o)
	onThreads(t, 8, func() {
		for i, g := range o.GPUs {
			h, err := r.Open(t.Context(), &g, []raw.Reading{{Kind: raw.Temperature, Index: raw.SensorJunction}})
			if err != nil {
				t.Error(err)
				return
			}
			v, err := readAll(h)
			if want := float64(tree.GPUs[i].State.JunctionC); err != nil || v[0] != want {
				t.Errorf("GPU %d: %v, %v, want %v", i, v, err, want)
			}
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// onThreads runs f on n different threads at the same time.
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

// While a living process holds a GPU's lock, Open says so after the library's
// five seconds, or sooner where its context ends; it works when the process is gone.
func TestRealLibraryBesideAHolder(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the library's five seconds")
	}
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI250X})
	lib := smitest.NewReal(t, tree)
	if b, err := inspectSMI(lib.Path); err != nil || b.threadLocks {
		t.Skip("the installed library keeps its locks to itself")
	}
	c := hold(t, lib, tree.GPUs[0])
	lib.Enter(t)
	o := smiOptionsFor(t, tree, lib.Path)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := openSMI(ctx, o); !errors.Is(err, errSMIStarting) {
		t.Errorf("openSMI with an ended context = %v, want errSMIStarting", err)
	}
	if _, err := openSMI(t.Context(), o); !errors.Is(err, smiStatusError{smiInitError}) || !strings.Contains(err.Error(), "/dev/shm") {
		t.Errorf("openSMI = %v, want status 8 and a word about /dev/shm", err)
	}
	if err := c.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err == nil {
		t.Fatal("a killed process ends well")
	}
	tree.GPUs[0].Reset(t, "hwmon/temp2_input")
	r := mustOpenSMI(t, o)
	mustRead(t, mustHandle(t, r, o.GPUs[0], raw.Reading{Kind: raw.Temperature, Index: raw.SensorJunction}))
}
