//go:build !race

package rocm

const smiUnderRace = false
