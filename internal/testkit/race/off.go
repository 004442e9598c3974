//go:build !race

// Package race reports whether the race detector runs, which makes code slower and adds allocations.
package race

// Enabled reports whether the race detector runs.
const Enabled = false
