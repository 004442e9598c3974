// Package eventually makes tests wait for conditions that other goroutines, processes and servers cause.
package eventually

import (
	"testing"
	"time"
)

// Patience is more than a busy, slow machine needs. Only a failing test waits that long.
const Patience = time.Minute

// Pauses between two checks, of this process or of another one.
const (
	pause   = 2 * time.Millisecond
	further = 10 * time.Millisecond
)

// True waits until is returns true, and fails the test if that does not happen in time. The failure names the
// condition, what. Only the test's own goroutine may call True.
func True(tb testing.TB, what string, is func() bool) {
	tb.Helper()
	for end := time.Now().Add(Patience); !is(); time.Sleep(pause) {
		if time.Now().After(end) {
			tb.Fatalf("%s: not within %v", what, Patience)
		}
	}
}

// OK waits until f returns nil, and fails the test with f's last error. It is for conditions that can explain
// themselves, such as the state of another process.
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
