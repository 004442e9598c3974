// Package testkit has the helpers that tests of all packages need.
package testkit

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Must ends the test if err is not nil. Only the test's own goroutine may call it.
func Must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Get returns a function that returns v, or ends the test if err is not nil, as Must does: Get(os.ReadFile(path))(t).
func Get[T any](v T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		Must(tb, err)
		return v
	}
}

// Equal fails the test if got is not want. what names the value.
func Equal(tb testing.TB, what string, want, got any, opts ...cmp.Option) {
	tb.Helper()
	if diff := cmp.Diff(want, got, opts...); diff != "" {
		tb.Errorf("%s (-want +got):\n%s", what, diff)
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

// ShortDir returns a temporary directory with a short path: a socket's path has at most 107 bytes.
func ShortDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "wg") //nolint:usetesting // TempDir can be too long
	Must(tb, err)
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
