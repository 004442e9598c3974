package isolation

import "time"

// firstPause is the pause before the first restart.
const firstPause = 100 * time.Millisecond

// pauses is the back-off between starts. A child that fails at once makes the
// next pause twice as long; each second in service takes one doubling back, so
// that a child which dies once a day is replaced at once, and one which dies at
// each start is tried for ever, once per longest pause.
type pauses struct {
	longest time.Duration
	level   int
}

// next returns the pause after a child that was in service for so long.
func (p *pauses) next(served time.Duration) time.Duration {
	p.level = max(0, p.level-int(min(served/time.Second, 1000)))
	d := firstPause
	for range p.level {
		d = min(2*d, p.longest)
	}
	d = min(d, p.longest)
	if d < p.longest {
		p.level++
	}
	return d
}
