//go:build race

package testkit

// Race reports whether the race detector runs, which makes code slower and adds allocations.
const Race = true
