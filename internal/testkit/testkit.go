// Package testkit has the helpers that tests of all packages need.
package testkit

import "testing"

// Must ends the test if err is not nil. Only the test's own goroutine may call it.
func Must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
