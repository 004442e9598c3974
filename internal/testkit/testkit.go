// Package testkit has the helpers that tests of all packages need.
package testkit

import (
	"context"
	"sync"
	"testing"
)

// Must ends the test if err is not nil. Only the test's own goroutine may call it.
func Must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Start calls run on a goroutine. The end of the test, or stop, ends its context, waits for it, and reports its error.
func Start(tb testing.TB, run func(context.Context) error) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Errorf("Run: %v", err)
		}
	})
	tb.Cleanup(stop)
	return stop
}
