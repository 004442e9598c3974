package main

import (
	"errors"
	"io/fs"
	"time"

	"warpgauge/collectors/rocm/rocmtest"
)

// look is how often the parent is checked if values do not move.
const look = 200 * time.Millisecond

// move lets the values of a tree follow the clock until ended says so.
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
		// The firmware counts milliseconds; a remaining fraction counts in the next step.
		d := max(now.Sub(last), 0).Truncate(time.Millisecond)
		if err := tree.StepBy(d); err != nil && !errors.Is(err, fs.ErrNotExist) { // a GPU may have been taken away
			return err
		}
		last = last.Add(d)
	}
	return nil
}
