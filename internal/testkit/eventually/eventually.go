// Package eventually waits, in tests, for conditions that other goroutines, processes and
// servers bring about in their own time.
package eventually

import (
	"testing"
	"time"
)

// Patience is more than a slow machine with other work needs for anything that is
// waited for here: only a test that fails waits so long.
const Patience = time.Minute

// Between two looks: into this process, or at another.
const (
	pause   = 2 * time.Millisecond
	further = 10 * time.Millisecond
)

// True waits until is returns true, and fails the test if that does not happen in time. The
// message names the condition, what. Only the test's own goroutine may call it.
func True(tb testing.TB, what string, is func() bool) {
	tb.Helper()
	for end := time.Now().Add(Patience); !is(); time.Sleep(pause) {
		if time.Now().After(end) {
			tb.Fatalf("%s: not within %v", what, Patience)
		}
	}
}

// OK is True for a condition that can explain itself, such as the state of another process. It
// waits until f returns nil, and fails the test with the last error.
func OK(tb testing.TB, what string, f func() error) {
	tb.Helper()
	var err error
	for end := time.Now().Add(Patience); ; time.Sleep(further) {
		if err = f(); err == nil {
			return
		}
		if time.Now().After(end) {
			tb.Fatalf("%s: not within %v: %v", what, Patience, err)
		}
	}
}
