package supervisor

import "time"

// firstPause is the pause before the first restart.
const firstPause = 100 * time.Millisecond

// servedPause is the longest pause after a child that was in service: it delivered rows, so the next one probably will, too.
const servedPause = time.Second

// pauses is the back-off between starts. A child that fails at once doubles the next pause; each second in service
// halves it once. So a child that dies once a day is replaced at once, and one that dies at each start is retried for
// ever, at the longest pause.
type pauses struct {
	longest time.Duration
	level   int
}

// next returns the pause after a child that was in service for the given time; 0 means never in service.
func (p *pauses) next(served time.Duration) time.Duration {
	longest := p.longest
	if served > 0 {
		longest = min(longest, servedPause)
	}
	p.level = max(0, p.level-int(min(served/time.Second, 1000)))
	for p.level > 0 && firstPause<<(p.level-1) >= longest {
		p.level--
	}
	d := min(firstPause<<p.level, longest)
	if d < longest {
		p.level++
	}
	return d
}
