package supervisor

import "time"

// firstPause is the pause before the first restart.
const firstPause = 100 * time.Millisecond

// servedPause is the longest pause after a child that was in service: it gave
// rows for a while, and so will the next.
const servedPause = time.Second

// pauses is the back-off between starts. A child that fails at once makes the
// next pause twice as long; each second in service takes one doubling back, so
// that a child which dies once a day is replaced at once, and one which dies at
// each start is tried for ever, once per longest pause.
type pauses struct {
	longest time.Duration
	level   int
}

// next returns the pause after a child that was in service for so long, 0 for
// never.
func (p *pauses) next(served time.Duration) time.Duration {
	longest := p.longest
	if served > 0 {
		longest = min(longest, servedPause)
	}
	p.level = max(0, p.level-int(min(served/time.Second, 1000)))
	d := min(firstPause, longest)
	level := 0
	for ; level < p.level && d < longest; level++ {
		d = min(2*d, longest)
	}
	p.level = level
	if d < longest {
		p.level++
	}
	return d
}
