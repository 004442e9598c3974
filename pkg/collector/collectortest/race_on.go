//go:build race

package collectortest

const raceEnabled = true
