// Package smitest makes ROCm SMI libraries for tests: a fake whose answers and faults a test sets, and copies of the
// installed library that read a simulated /sys. Production does not use it.
package smitest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/internal/testkit"
)

var must = testkit.Must

// Fake is one copy of a fake with its own answers. fake/answer.h, fake/rocm_smi64.c
// and fake/amd_smi.c describe the keys and actions at their top.
type Fake struct {
	Path  string
	dir   string
	lines map[string]string
}

// New makes a copy. It hides the symbols in without from the loader.
func (b Built) New(tb testing.TB, without ...string) *Fake {
	tb.Helper()
	dir := tb.TempDir()
	f := &Fake{Path: filepath.Join(dir, filepath.Base(b.file)), dir: dir, lines: map[string]string{}}
	text, err := os.ReadFile(b.file)
	if err == nil {
		for _, s := range without {
			if text, err = hide(text, s); err != nil {
				break
			}
		}
	}
	if err == nil {
		err = os.WriteFile(f.Path, text, 0o600) //nolint:gosec // in a directory of the test
	}
	must(tb, err)
	tb.Cleanup(func() { f.Release(tb) })
	return f
}

// Set sets a key's answer.
func (f *Fake) Set(tb testing.TB, key, action string) {
	tb.Helper()
	f.lines[key] = action
	f.write(tb)
}

// Unset removes a key's answer.
func (f *Fake) Unset(tb testing.TB, key string) {
	tb.Helper()
	delete(f.lines, key)
	f.write(tb)
}

// SetRecords sets a device's records, in CPER's bytes.
func (f *Fake) SetRecords(tb testing.TB, device int, records []byte) {
	tb.Helper()
	f.file(tb, fmt.Sprintf("records.%d", device), records)
}

// Release ends all hangs, also of later calls.
func (f *Fake) Release(tb testing.TB) {
	tb.Helper()
	err := os.WriteFile(filepath.Join(f.dir, "release"), nil, 0o600)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		tb.Error(err)
	}
}

// write replaces the file atomically, because the library reads it at every call.
func (f *Fake) write(tb testing.TB) {
	tb.Helper()
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(f.lines)) {
		fmt.Fprintf(&b, "%s %s\n", k, f.lines[k])
	}
	f.file(tb, "state", []byte(b.String()))
}

func (f *Fake) file(tb testing.TB, name string, text []byte) {
	tb.Helper()
	next := filepath.Join(f.dir, "next")
	err := os.WriteFile(next, text, 0o600)
	if err == nil {
		err = os.Rename(next, filepath.Join(f.dir, name))
	}
	must(tb, err)
}

// Call is one call of the library.
type Call struct {
	Function         string
	Device, Argument uint64
	Thread           int
}

// Calls returns the calls so far, in order. For rsmi_init, Device holds the flags and Argument the value of
// RSMI_MUTEX_THREAD_ONLY.
func (f *Fake) Calls(tb testing.TB) []Call {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(f.dir, "calls"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		tb.Fatal(err)
	}
	var calls []Call
	for line := range strings.Lines(string(text)) {
		var c Call
		if _, err := fmt.Sscan(line, &c.Function, &c.Device, &c.Argument, &c.Thread); err != nil {
			tb.Fatalf("line %q of the journal: %v", line, err)
		}
		calls = append(calls, c)
	}
	return calls
}

// Count returns how often a function has been called.
func (f *Fake) Count(tb testing.TB, function string) (n int) {
	tb.Helper()
	for _, c := range f.Calls(tb) {
		if c.Function == function {
			n++
		}
	}
	return n
}

// SetDevices sets the fake's devices to the tree's current GPUs, in their order.
// A real library sees a change at the next rsmi_init.
func (f *Fake) SetDevices(tb testing.TB, tree *rocmtest.Tree) {
	tb.Helper()
	n := 0
	for _, g := range tree.GPUs {
		var domain, bus, device, function uint64
		if _, err := fmt.Sscanf(g.PCI, "%x:%x:%x.%x", &domain, &bus, &device, &function); err != nil {
			tb.Fatal(err)
		}
		if _, err := os.Stat(g.Path("")); err != nil {
			continue
		}
		f.Set(tb, fmt.Sprintf("amdsmi_get_gpu_device_bdf.%d", n), fmt.Sprintf("ok %d", domain<<16|bus<<8|device<<3|function))
		f.Set(tb, fmt.Sprintf("rsmi_dev_pci_id_get.%d", n), fmt.Sprintf("ok %d", domain<<32|bus<<8|device<<3|function))
		n++
	}
	f.Set(tb, "devices", fmt.Sprintf("ok %d", n))
}
