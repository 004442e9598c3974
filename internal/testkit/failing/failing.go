// Package failing runs, for tests of test helpers, a test that may fail or skip without the test that runs it.
package failing

import (
	"fmt"
	"runtime"
	"testing"
)

// Test records how a test ended.
type Test struct {
	testing.TB
	Message, Reason, Logged string // of the failure, of the skip, by Logf
	Cleanups                []func()
}

// Run runs f in a goroutine of its own, which Fatal and Skip end, and returns when it has ended. Clean-ups wait for End.
func Run(t testing.TB, f func(testing.TB)) *Test {
	t.Helper()
	r, ended := &Test{TB: t}, make(chan struct{})
	go func() {
		defer close(ended)
		f(r)
	}()
	<-ended
	return r
}

// End runs the clean-ups.
func (r *Test) End() {
	for _, f := range r.Cleanups {
		f()
	}
}

// Helper does nothing.
func (r *Test) Helper() {}

// Skipf records why the test was skipped.
func (r *Test) Skipf(format string, args ...any) {
	r.Reason = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// Fatal records the failure.
func (r *Test) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

// Fatalf records the failure.
func (r *Test) Fatalf(format string, args ...any) {
	r.Message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// Failed reports whether the test has failed.
func (r *Test) Failed() bool { return r.Message != "" }

// Cleanup keeps f for End.
func (r *Test) Cleanup(f func()) { r.Cleanups = append(r.Cleanups, f) }

// Logf adds to Logged.
func (r *Test) Logf(format string, args ...any) { r.Logged += fmt.Sprintf(format, args...) }
