//go:build linux && cgo

package rocm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"warpgauge/collectors/rocm/internal/raw"
	"warpgauge/collectors/rocm/rocmtest/smitest"
	"warpgauge/pkg/collector"
)

func functions(calls []smitest.Call, of ...string) []string {
	var names []string
	for _, c := range calls {
		if slices.Contains(of, c.Function) {
			names = append(names, c.Function)
		}
	}
	return names
}

// Libraries whose locks lie in /dev/shm are started, stopped and started on one
// thread; newer ones are told to keep their locks to themselves.
func TestSMIStartSequence(t *testing.T) {
	tree := radeons(t, 2)
	f := func(abi smitest.ABI, want []string, flags uint64) {
		t.Helper()
		fake := fakeFor(t, tree, smitest.Compile(t, abi, false))
		mustOpenSMI(t, smiOptionsFor(t, tree, fake.Path))
		calls := fake.Calls(t)
		if got := functions(calls, "rsmi_init", "rsmi_shut_down"); !slices.Equal(got, want) {
			t.Errorf("ABI %d: %q, want %q", abi, got, want)
		}
		for _, c := range calls {
			if c.Thread != calls[0].Thread {
				t.Errorf("ABI %d: %s on thread %d, want %d", abi, c.Function, c.Thread, calls[0].Thread)
			}
			if c.Function == "rsmi_init" && c.Device != flags {
				t.Errorf("ABI %d: flags %#x, want %#x", abi, c.Device, flags)
			}
		}
	}
	f(smitest.ROCm5, []string{"rsmi_init", "rsmi_shut_down", "rsmi_init"}, 0)
	f(smitest.ROCm6, []string{"rsmi_init"}, 0x400000000000000)
	f(smitest.ROCm7, []string{"rsmi_init"}, 0x400000000000000)
}

// The locks that a killed process left are held by the thread of the first
// rsmi_init; calls from other threads must not wait for it.
func TestSMIStaleLocks(t *testing.T) {
	tree := radeons(t, 2)
	for _, abi := range []smitest.ABI{smitest.ROCm5, smitest.ROCm7} {
		fake := fakeFor(t, tree, smitest.Compile(t, abi, false))
		fake.Set(t, "stale", "ok 1")
		fake.Set(t, "rsmi_dev_temp_metric_get", "ok 42000")
		r := mustOpenSMI(t, smiOptionsFor(t, tree, fake.Path))
		onThreads(t, 8, func() {
			for _, g := range boards(t, tree) {
				h, err := r.Open(t.Context(), &g, []raw.Reading{{Kind: raw.Temperature}})
				if err != nil {
					t.Error(err)
					return
				}
				if v, err := readAll(h); err != nil || v[0] != 42 {
					t.Errorf("Read = %v, %v", v, err)
				}
				if err := h.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// untilInit returns a context that ends when rsmi_init has been called n times: a
// deadline could end before the library is loaded.
func untilInit(t *testing.T, fake *smitest.Fake, n int) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	t.Cleanup(waiting.Wait)
	waiting.Go(func() {
		for fake.Count(t, "rsmi_init") < n && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		cancel()
	})
	return ctx
}

// An rsmi_init that does not return stalls nobody, and no second one is begun.
func TestSMIInitHangs(t *testing.T) {
	tree := radeons(t, 1)
	fake := fakeFor(t, tree, smitest.Compile(t, smitest.ROCm7, false))
	fake.Set(t, "rsmi_init", "hang")
	o := smiOptionsFor(t, tree, fake.Path)
	for range 3 {
		if _, err := openSMI(untilInit(t, fake, 1), o); !errors.Is(err, errSMIStarting) || !errors.Is(err, context.Canceled) {
			t.Fatalf("openSMI = %v, want errSMIStarting and the end of the context", err)
		}
	}
	// The start has been waited for long enough: who comes now is told at once.
	s := o.Shared.of[fake.Path]
	s.mu.Lock()
	s.patience = 0
	s.mu.Unlock()
	if _, err := openSMI(t.Context(), o); !errors.Is(err, errSMIStarting) {
		t.Fatalf("openSMI = %v, want errSMIStarting", err)
	}
	s.mu.Lock()
	s.patience = startPatience
	s.mu.Unlock()
	if n := fake.Count(t, "rsmi_init"); n != 1 {
		t.Errorf("rsmi_init called %d times, want once", n)
	}
	fake.Unset(t, "rsmi_init")
	fake.Release(t)
	// The one that hung says "not supported" in the end. Who waits for it hears
	// that, and the next begins anew.
	if r, err := openSMI(t.Context(), o); err == nil {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	} else if !errors.Is(err, smiStatusError{2}) {
		t.Fatalf("openSMI = %v, want what the start says that hung", err)
	}
	mustOpenSMI(t, o)
}

// After an rsmi_init that failed nothing else is called, as it would crash; the
// next Open tries again.
func TestSMIInitFails(t *testing.T) {
	tree := radeons(t, 1)
	fake := fakeFor(t, tree, smitest.Compile(t, smitest.ROCm5, false))
	o := smiOptionsFor(t, tree, fake.Path)
	fake.Set(t, "rsmi_init", "status 8")
	_, err := openSMI(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "RSMI_STATUS_INIT_ERROR [code 8]: it finds no GPU with the amdgpu driver, or cannot write to /dev/shm") {
		t.Errorf("openSMI = %v", err)
	}
	if calls := fake.Calls(t); len(calls) != 1 {
		t.Errorf("calls %v, want rsmi_init alone", calls)
	}
	fake.Unset(t, "rsmi_init")
	fake.Set(t, "rsmi_num_monitor_devices", "status 6")
	if _, err = openSMI(t.Context(), o); !errors.Is(err, smiStatusError{6}) {
		t.Errorf("openSMI = %v, want status 6", err)
	}
	fake.Unset(t, "rsmi_num_monitor_devices")
	mustOpenSMI(t, o)
	got := functions(fake.Calls(t), "rsmi_init", "rsmi_shut_down")
	up := 0
	for i, f := range got[1:] { // the first failed
		if f == "rsmi_init" {
			up++
		} else {
			up--
		}
		if up < 0 || up > 1 {
			t.Fatalf("call %d: %d references; %q", i+1, up, got)
		}
	}
	if up != 1 {
		t.Errorf("%d references in the end, want 1: %q", up, got)
	}
}

// What a library with asserts would end the process for is seen before rsmi_init.
func TestSMIPreflight(t *testing.T) {
	tree := radeons(t, 1)
	fake := fakeFor(t, tree, smitest.Compile(t, smitest.ROCm5, true))
	o := smiOptionsFor(t, tree, fake.Path)
	tree.GPUs[0].Remove(t, "kfd/io_links")
	if _, err := openSMI(t.Context(), o); err == nil || !strings.Contains(err.Error(), "io_links") {
		t.Errorf("openSMI = %v, want an error about io_links", err)
	}
	if n := fake.Count(t, "rsmi_init"); n != 0 {
		t.Errorf("rsmi_init called %d times", n)
	}
	tree.GPUs[0].Reset(t, "kfd/io_links")
	r := mustOpenSMI(t, o)
	h := mustHandle(t, r, o.GPUs[0], everything()...)
	mustRead(t, h)
	for _, f := range []string{"rsmi_dev_gpu_clk_freq_get", "rsmi_dev_ecc_count_get", "rsmi_dev_memory_reserved_pages_get"} {
		if n := fake.Count(t, f); n != 0 {
			t.Errorf("%s called %d times in a library with asserts", f, n)
		}
	}
}

// Collectors side by side, as during a reload, share one start; the library ends
// with the last.
func TestSMIShared(t *testing.T) {
	tree := radeons(t, 2)
	fake := fakeFor(t, tree, smitest.Compile(t, smitest.ROCm7, false))
	o := smiOptionsFor(t, tree, fake.Path)
	count := func(inits, ends int) {
		t.Helper()
		if i, e := fake.Count(t, "rsmi_init"), fake.Count(t, "rsmi_shut_down"); i != inits || e != ends {
			t.Errorf("%d rsmi_init, %d rsmi_shut_down, want %d and %d", i, e, inits, ends)
		}
	}
	a, b := mustOpenSMI(t, o), mustOpenSMI(t, o)
	count(1, 0)
	h := mustHandle(t, a, o.GPUs[1], raw.Reading{Kind: raw.Temperature})
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	count(1, 0)
	mustRead(t, h)
	if err := errors.Join(h.Close(), a.Close(), a.Close()); err != nil {
		t.Fatal(err)
	}
	count(1, 1)
	if v, err := readAll(h); !errors.Is(err, errSMIDown) || !math.IsNaN(v[0]) {
		t.Errorf("Read after the end = %v, %v, want NaN and errSMIDown", v, err)
	}
	if _, err := a.Open(t.Context(), &o.GPUs[0], nil); !errors.Is(err, errSMIDown) {
		t.Errorf("Open after the end = %v, want errSMIDown", err)
	}
	mustOpenSMI(t, o)
	count(2, 1)
}

// A Close during a start waits for it, so that the library is not left started
// for nobody, but no longer than it should.
func TestSMICloseDuringAStart(t *testing.T) {
	tree := radeons(t, 1)
	fake := fakeFor(t, tree, smitest.Compile(t, smitest.ROCm7, false))
	o := smiOptionsFor(t, tree, fake.Path)
	r := mustOpenSMI(t, o)
	fake.Set(t, "rsmi_init", "late")
	r.shared.renew(o.Sys)
	for fake.Count(t, "rsmi_init") < 2 {
		time.Sleep(time.Millisecond) // until it is inside
	}
	s := r.shared
	s.mu.Lock()
	s.users++ // that of a second collector
	s.mu.Unlock()
	s.release(time.Millisecond)
	closed := make(chan error)
	go func() { closed <- r.Close() }()
	fake.Release(t)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.up || s.users != 0 || fake.Count(t, "rsmi_shut_down") != 2 {
		t.Errorf("after the last Close: up %v, %d users, %d rsmi_shut_down; want false, 0, 2", s.up, s.users, fake.Count(t, "rsmi_shut_down"))
	}
}

// Many at once, with the library started anew underneath: run it with -race.
func TestSMISharedHammer(t *testing.T) {
	tree := radeons(t, 2)
	fake := fakeFor(t, tree, smitest.Compile(t, smitest.ROCm7, false))
	for i := range 2 {
		fake.Set(t, fmt.Sprintf("rsmi_dev_temp_metric_get.%d", i), fmt.Sprintf("ok %d000", i+1))
	}
	o := smiOptionsFor(t, tree, fake.Path)
	r := mustOpenSMI(t, o)
	var readers, openers sync.WaitGroup
	done := make(chan struct{})
	for i, g := range o.GPUs {
		h := mustHandle(t, r, g, raw.Reading{Kind: raw.Temperature})
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				v, err := readAll(h)
				if err == nil && v[0] != float64(i+1) || err != nil && !errors.Is(err, errSMIDown) {
					t.Errorf("GPU %d: %v, %v", i, v, err)
					return
				}
			}
		})
	}
	for range 3 {
		openers.Go(func() {
			for range 15 {
				r.shared.lost() // the next Open starts it anew
				x, err := openSMI(t.Context(), o)
				if err != nil {
					t.Error(err)
					return
				}
				if err := x.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	openers.Wait()
	close(done)
	readers.Wait()
}

// A call that hangs stalls its own GPU: the others are read, a reload joins, and
// GPUs are found anew as soon as it returns.
func TestSMICallHangs(t *testing.T) {
	tree := radeons(t, 2)
	fake := fakeFor(t, tree, smitest.Compile(t, smitest.ROCm7, false))
	fake.Set(t, "rsmi_dev_temp_metric_get", "ok 50000")
	o := smiOptionsFor(t, tree, fake.Path)
	r := mustOpenSMI(t, o)
	wanted := raw.Reading{Kind: raw.Temperature}
	stuck, free := mustHandle(t, r, o.GPUs[0], wanted), mustHandle(t, r, o.GPUs[1], wanted)
	fake.Set(t, "rsmi_dev_temp_metric_get.0", "hang")
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		_, _ = readAll(stuck)
	}()
	for fake.Count(t, "rsmi_dev_temp_metric_get") == 0 {
		time.Sleep(time.Millisecond) // until it is inside
	}
	for range 3 {
		if v := mustRead(t, free); v[0] != 50 {
			t.Errorf("the other GPU reads %v", v)
		}
	}
	if err := stuck.Close(); err != nil {
		t.Errorf("Close beside a Read that hangs: %v", err)
	}
	joined := mustOpenSMI(t, o)
	if v := mustRead(t, mustHandle(t, joined, o.GPUs[1], wanted)); v[0] != 50 {
		t.Errorf("a second collector reads %v", v)
	}
	select {
	case <-returned:
		t.Fatal("the call has not hung")
	default:
	}
	// A new list cannot be made now; the old one stays in use.
	r.shared.lost()
	third := mustOpenSMI(t, o)
	if v := mustRead(t, free); v[0] != 50 {
		t.Errorf("while the list cannot be made anew: %v", v)
	}
	if n := fake.Count(t, "rsmi_init"); n != 1 {
		t.Errorf("%d rsmi_init with a call inside, want 1", n)
	}
	// Nor may the library end.
	if err := errors.Join(third.Close(), joined.Close(), r.Close()); err != nil {
		t.Error(err)
	}
	if n := fake.Count(t, "rsmi_shut_down"); n != 0 {
		t.Errorf("%d rsmi_shut_down with a call inside, want none", n)
	}
	fake.Unset(t, "rsmi_dev_temp_metric_get.0")
	fake.Release(t)
	<-returned
	last := mustOpenSMI(t, o)
	if n := fake.Count(t, "rsmi_init"); n != 2 {
		t.Errorf("%d rsmi_init after the call has returned, want 2", n)
	}
	if v := mustRead(t, mustHandle(t, last, o.GPUs[0], wanted)); v[0] != 50 {
		t.Errorf("the GPU that hung reads %v", v)
	}
}

// A new start that fails leaves nothing to call, and the handles find their way
// when a later one succeeds.
func TestSMIRestartFails(t *testing.T) {
	tree := radeons(t, 1)
	fake := fakeFor(t, tree, smitest.Compile(t, smitest.ROCm7, false))
	fake.Set(t, "rsmi_dev_temp_metric_get", "ok 50000")
	o := smiOptionsFor(t, tree, fake.Path)
	r := mustOpenSMI(t, o)
	h := mustHandle(t, r, o.GPUs[0], raw.Reading{Kind: raw.Temperature})
	r.shared.lost()
	fake.Set(t, "rsmi_init", "status 8")
	if _, err := openSMI(t.Context(), o); !errors.Is(err, smiStatusError{smiInitError}) {
		t.Fatalf("openSMI = %v, want status 8", err)
	}
	for range 3 {
		v, err := readAll(h)
		if !errors.Is(err, errSMIDown) || !errors.Is(err, collector.ErrColumnsChanged) || !math.IsNaN(v[0]) {
			t.Errorf("Read = %v, %v, want NaN, errSMIDown and ErrColumnsChanged", v, err)
		}
	}
	fake.Unset(t, "rsmi_init")
	mustOpenSMI(t, o)
	if v := mustRead(t, h); v[0] != 50 {
		t.Errorf("Read = %v", v)
	}
}

// While a new start does not return, reading says that it waits, and asks for
// another Open when that has lasted too long.
func TestSMIRestartHangs(t *testing.T) {
	tree := radeons(t, 1)
	fake := fakeFor(t, tree, smitest.Compile(t, smitest.ROCm7, false))
	o := smiOptionsFor(t, tree, fake.Path)
	r := mustOpenSMI(t, o)
	h := mustHandle(t, r, o.GPUs[0], raw.Reading{Kind: raw.Temperature})
	r.shared.lost()
	fake.Set(t, "rsmi_init", "hang")
	if _, err := openSMI(untilInit(t, fake, 2), o); !errors.Is(err, errSMIStarting) {
		t.Fatalf("openSMI = %v, want errSMIStarting", err)
	}
	for range 2 {
		if _, err := readAll(h); !errors.Is(err, errSMIDown) || errors.Is(err, collector.ErrColumnsChanged) {
			t.Errorf("Read = %v, want errSMIDown alone", err)
		}
	}
	r.shared.mu.Lock()
	r.shared.patience = 0
	r.shared.mu.Unlock()
	if _, err := readAll(h); !errors.Is(err, collector.ErrColumnsChanged) {
		t.Errorf("Read = %v, want ErrColumnsChanged", err)
	}
	if _, err := openSMI(t.Context(), o); !errors.Is(err, errSMIStarting) {
		t.Errorf("openSMI = %v, want errSMIStarting", err)
	}
	r.shared.mu.Lock()
	r.shared.patience = startPatience
	r.shared.mu.Unlock()
	fake.Set(t, "rsmi_init", "ok")
	fake.Release(t)
	for {
		x, err := openSMI(t.Context(), o)
		if err == nil {
			if err := x.Close(); err != nil {
				t.Error(err)
			}
			break
		}
		if !errors.Is(err, smiStatusError{2}) {
			t.Fatal(err)
		}
	}
	mustRead(t, h)
}
