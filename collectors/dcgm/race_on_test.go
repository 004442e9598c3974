//go:build race

package dcgm

// raceEnabled: the race runtime allocates on its own account.
const raceEnabled = true
