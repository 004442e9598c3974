package collectortest

import (
	"context"
	"math"
	"os"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"warpgauge/pkg/collector"
)

// checkFailOpen checks that a failed Open does not make the next Open fail.
func checkFailOpen(tb *subtest) {
	if tb.rig.FailOpen == nil {
		tb.Skip("the rig has no FailOpen")
	}
	restore := tb.rig.FailOpen()
	for range 2 {
		c := tb.rig.Factory()
		sources, err := c.Open(context.Background(), tb.h.Fields)
		if err == nil || len(sources) > 0 {
			tb.Errorf("open that must fail: got %d sources, error %v", len(sources), err)
		}
		if err := c.Close(); err != nil {
			tb.Errorf("close after a failed open: %v", err)
		}
	}
	restore()
	_, sources := tb.open()
	for _, s := range sources {
		sampleAll(tb, s)
	}
}

func checkCloseTwice(tb *subtest) {
	c, _ := tb.open()
	for i := range 2 {
		if err := c.Close(); err != nil {
			tb.Errorf("close %d: %v", i+1, err)
		}
	}
}

// checkAgain opens collectors one after another in one process, as sessions do. Each must have values.
func checkAgain(tb *subtest) {
	for n := range 3 {
		c, sources := tb.open()
		for i, s := range sources {
			if row := sampleAll(tb, s); len(row) > 0 && allBlank(row) {
				tb.Errorf("source %d of open %d is all blank", i, n+1)
			}
		}
		closeNow(tb, c)
	}
}

// checkRescan checks that Rescan reports no change of unchanged hardware, also while Sample runs.
func checkRescan(tb *subtest) {
	c, sources := tb.open()
	r, ok := c.(collector.Rescanner)
	if !ok {
		tb.Skip("the collector is no Rescanner")
	}
	var stop atomic.Bool
	done := make(chan error)
	go func() {
		row, due := rowOf(sources[0], math.NaN()), dueOf(sources[0], true)
		var err error
		for !stop.Load() && err == nil {
			err = sources[0].Sample(row, due)
		}
		done <- err
	}()
	for range 5 {
		if changed, err := r.Rescan(context.Background()); changed || err != nil {
			tb.Errorf("rescan of unchanged hardware: got changed=%v, error %v", changed, err)
		}
	}
	stop.Store(true)
	if err := <-done; err != nil {
		tb.Errorf("sample next to a rescan: %v", err)
	}
}

// checkLeaks opens, samples and closes repeatedly, and compares the numbers of goroutines and descriptors.
func checkLeaks(tb *subtest) {
	cycle := func() {
		c := tb.rig.Factory()
		sources, err := c.Open(context.Background(), tb.h.Fields)
		if err != nil {
			tb.Fatalf("open: %v", err)
		}
		for _, s := range sources {
			sampleAll(tb, s)
		}
		if err := c.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	}
	cycle() // not counted: a library may keep resources of its first load for the life of the process
	before, files := goleak.IgnoreCurrent(), openFiles(tb)
	const cycles = 4
	for range cycles {
		cycle()
	}
	if err := goleak.Find(before); err != nil {
		tb.Errorf("goroutines left after close: %v", err)
	}
	for target, n := range openFiles(tb) {
		if n > files[target] {
			tb.Errorf("descriptors of %s after %d times open and close: %d, before %d", target, cycles, n, files[target])
		}
	}
}

// openFiles counts this process's descriptors by their targets.
func openFiles(tb testing.TB) map[string]int {
	tb.Helper()
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		tb.Skipf("cannot count descriptors: %v", err)
	}
	out := map[string]int{}
	for _, e := range entries {
		// The descriptor that listed the directory is gone by now.
		if target, err := os.Readlink(dir + "/" + e.Name()); err == nil {
			out[target]++
		}
	}
	return out
}

func allBlank(row []float64) bool {
	for _, v := range row {
		if !math.IsNaN(v) {
			return false
		}
	}
	return true
}
