package isolation

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/sampler"
)

// onEnd decides what follows the end of a child.
func (s *Supervisor) onEnd(c *session, now time.Time) {
	s.metrics.retire(c)
	c.counted = true
	var served time.Duration
	if c == s.serving && c.verdict.reason != ReasonHung {
		served = now.Sub(s.servingAt)
	}
	if c.verdict.reason == quiet {
		s.rest(c, now)
		return
	}
	c.relay.release(s.restedFor)
	s.failed(c.verdict, served, now, zap.Int("pid", c.pid), zap.Duration("lived", now.Sub(c.born).Round(time.Millisecond)),
		zap.String("stderr", c.words.text()))
}

// rest follows a child that had nothing to sample, as on a node without this
// vendor's devices: another looks again later.
func (s *Supervisor) rest(c *session, now time.Time) {
	const first = time.Second
	if st := c.state.Load(); st != nil && st.reason != s.restedFor {
		c.relay.release(s.restedFor) // something new
		s.restedFor = st.reason
	}
	s.idle = min(max(2*s.idle, first), s.o.RestartMax)
	s.startAt = now.Add(s.idle)
	s.answer(forEver, nil)
}

// failed notes the end of a child that should not have ended, or whose process is
// of no use any more.
func (s *Supervisor) failed(v verdict, served time.Duration, now time.Time, fields ...zap.Field) {
	s.restedFor = ""
	s.metrics.restarted(v.reason)
	pause := s.pauses.next(served)
	cause := sampler.CauseChild
	if v.reason == ReasonOutdated {
		cause = sampler.CauseOutdated
		if pause <= firstPause { // not one after the other
			pause = 0
		}
	}
	s.startAt = now.Add(pause)
	s.log.Warn("child ended, another is started", append([]zap.Field{
		zap.String("cause", v.reason), zap.String("reason", v.text), zap.Duration("pause", pause),
	}, fields...)...)
	s.setProblem(cause, v.text)
	s.answer(forEver, fmt.Errorf("reload collector %q: its process has ended (%s); the next one reads the new list", s.o.Name, v.text))
}

// recycle replaces a child over its memory limit: with a second beside it, or,
// while a call hangs in which no second should join, with one after it.
func (s *Supervisor) recycle(v *session, now time.Time) {
	if v.hangs() {
		v.kill(ReasonMemory, "grew over the memory limit")
		return
	}
	s.startAt = now.Add(s.pauses.next(now.Sub(s.servingAt)))
}

// hasNothing reports whether a child has said that this machine has nothing for
// its collector. There is no use in keeping its process.
func (s *Supervisor) hasNothing(c *session) bool {
	st := c.state.Load()
	if st == nil || st.up || c.shown.Load() != nil || c.ending() {
		return false
	}
	switch sampler.Cause(st.cause) {
	case sampler.CauseNotBuilt, sampler.CauseNotLoaded, sampler.CauseNoDevices, sampler.CauseNothing:
		return true
	}
	return false
}

// buryRetired forgets the children that are gone.
func (s *Supervisor) buryRetired() {
	kept := s.retired[:0]
	for _, r := range s.retired {
		if r.isDone() {
			s.metrics.retire(r)
		} else {
			kept = append(kept, r)
		}
	}
	s.retired = kept
}

// stop ends every child.
func (s *Supervisor) stop() error {
	s.answer(forEver, context.Canceled)
	s.answerReleases(context.Canceled)
	all := s.retired
	for _, c := range []*session{s.serving, s.candidate} {
		if c != nil && !c.isDone() {
			all = append(all, c)
		}
	}
	for _, c := range all {
		c.stop(verdict{quiet, "the exporter ends"}, s.o.StopTimeout)
	}
	deadline := time.NewTimer(s.o.StopTimeout + s.o.stopSlack)
	defer deadline.Stop()
	for _, c := range all {
		select {
		case <-c.done:
		case <-deadline.C:
			return fmt.Errorf("stop collector %q: child %d does not end after SIGKILL, abandoned", s.o.Name, c.pid)
		}
	}
	return nil
}

// stopSlack is what SIGKILL and reaping may take at the end.
const stopSlack = 250 * time.Millisecond
