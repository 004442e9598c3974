package main

import (
	"errors"
	"io/fs"
	"time"

	"warpgauge/collectors/rocm/rocmtest"
)

// look is how often move checks the parent if values do not change.
const look = 200 * time.Millisecond

// move advances the values of a tree with the clock until ended returns true.
func move(tree *rocmtest.Tree, every time.Duration, ended func() bool) error {
	pause := every
	if every == 0 {
		pause = look
	}
	tick := time.NewTicker(pause)
	defer tick.Stop()
	last := time.Now()
	for !ended() {
		now := <-tick.C
		if every == 0 {
			continue
		}
		// The firmware counts milliseconds; the remainder counts in the next step.
		d := max(now.Sub(last), 0).Truncate(time.Millisecond)
		if err := tree.StepBy(d); err != nil && !errors.Is(err, fs.ErrNotExist) { // a GPU may have been removed
			return err
		}
		last = last.Add(d)
	}
	return nil
}
