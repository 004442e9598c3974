//go:build linux && cgo && !race

package nvml

const raceEnabled = false
