//go:build race

// Package race says whether the race detector runs, under which code is slower and allocates.
package race

// Enabled reports whether the race detector runs.
const Enabled = true
