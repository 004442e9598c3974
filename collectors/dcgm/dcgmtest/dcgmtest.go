// Package dcgmtest simulates DCGM for tests. It has a libdcgm.so.4 with a host engine, written in C against DCGM's public
// headers and compiled when a test needs it, and a Go handle that changes the answers while the library runs.
//
// The library is a real shared object, so tests exercise dlopen, dlsym, our own C calls and go-dcgm's lazy binding as on
// a node with DCGM. It reads a script (see README.md), which an Engine writes and changes. The library sees a change at
// its next call, in every process.
//
// Each Engine has its own library. Its UUIDs and PCI addresses equal nvmltest's, so that a simulated NVML next to it
// has the same GPUs.
package dcgmtest

import (
	"cmp"
	"errors"
	"fmt"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/programtest"
)

// Config of an Engine. The zero value is the host engine 4.6.0 of a DGX H100.
type Config struct {
	// Preset is "dgx-h100" (8 GPUs with 18 links each, 4 switches), "a100-mig" (2 GPUs, one with instances), "gb200" (4 GPUs, 2
	// Grace CPUs with 72 cores each) or "pcie" (GPUs without links); "" means "dgx-h100".
	Preset string
	// GPUs is the number of GPUs; 0 means the preset's number.
	GPUs int
	// Version is the host engine's version; "" means "4.6.0".
	Version string
	// Library is the library's version, which decides its functions; "" means Version.
	Library string
	// Without lists functions that the library lacks in addition.
	Without []string
	// Lines of script follow those of the preset and override them.
	Lines []string
}

// New returns an Engine that lives until the test ends. Without a C compiler it
// skips the test, unless WARPGAUGE_REQUIRE names cc.
func New(tb testing.TB, c Config) *Engine {
	tb.Helper()
	programtest.Find(tb, "cc")
	e, err := Write(tb.TempDir(), c, func(err error) { tb.Helper(); tb.Fatal(err) })
	testkit.Must(tb, err)
	tb.Cleanup(func() {
		tb.Helper()
		if err := e.Close(); err != nil {
			tb.Error(err)
		}
	})
	return e
}

// Write writes a library and its script to a directory and leaves them there, for programs that are started with
// --dcgm-library=DIR/libdcgm.so.4. The Engine's methods call fail with their errors. fail must not return.
func Write(dir string, c Config, fail func(error)) (*Engine, error) {
	c.Preset, c.Version = cmp.Or(c.Preset, "dgx-h100"), cmp.Or(c.Version, "4.6.0")
	c.Library = cmp.Or(c.Library, c.Version)
	built, err := build(c.Library, c.Without)
	if err != nil {
		return nil, err
	}
	own, err := simulation().Copy(dir, built)
	if err != nil {
		return nil, err
	}
	e := &Engine{config: c, fail: fail, lib: own}
	if err := e.prepare(); err != nil {
		return nil, fmt.Errorf("preset %q: %w", c.Preset, err)
	}
	return e, errors.Join(own.Control.Write(wordSince, uint64(time.Now().UnixMicro())), own.Write(e.text()))
}
