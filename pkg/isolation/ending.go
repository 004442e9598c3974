package isolation

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/sampler"
)

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
	c.relay.release()
	s.failed(c.verdict, served, now, zap.Int("pid", c.pid), zap.Duration("lived", now.Sub(c.born).Round(time.Millisecond)),
		zap.String("stderr", c.words.text()))
}

func (s *Supervisor) rest(c *session, now time.Time) {
	const first = time.Second
	if st := c.state.Load(); st != nil && st.reason != s.restedFor {
		c.relay.release() // something new
		s.restedFor = st.reason
	}
	s.idle = min(max(2*s.idle, first), s.o.RestartMax)
	s.startAt = now.Add(s.idle)
	s.answer(forEver, nil)
}

func (s *Supervisor) failed(v verdict, served time.Duration, now time.Time, fields ...zap.Field) {
	s.restedFor = ""
	s.metrics.restarted(v.reason)
	pause := s.pauses.next(served)
	s.startAt = now.Add(pause)
	s.log.Warn("child ended, another is started", append([]zap.Field{
		zap.String("cause", v.reason), zap.String("reason", v.text), zap.Duration("pause", pause),
	}, fields...)...)
	s.setProblem(sampler.CauseChild, v.text)
	s.answer(forEver, fmt.Errorf("reload collector %q: its process has ended (%s); the next one reads the new list", s.o.Name, v.text))
}

func (s *Supervisor) recycle(v *session, now time.Time) {
	if v.hangs() {
		v.kill(ReasonMemory, "grew over the memory limit")
		return
	}
	s.startAt = now.Add(s.pauses.next(now.Sub(s.servingAt)))
}

func (s *Supervisor) hasNothing(c *session) bool {
	st := c.state.Load()
	if st == nil || st.up || c.shown.Load() != nil || c.ending() {
		return false
	}
	switch sampler.Cause(st.cause) {
	case sampler.CauseNotBuilt, sampler.CauseNotLoaded, sampler.CauseNoDevices:
		return true
	}
	return false
}

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

func (s *Supervisor) stop() error {
	s.answer(forEver, context.Canceled)
	all := s.retired
	for _, c := range []*session{s.serving, s.candidate} {
		if c != nil && !c.isDone() {
			all = append(all, c)
		}
	}
	for _, c := range all {
		c.stop(verdict{quiet, "the exporter ends"}, s.o.StopTimeout)
	}
	deadline := time.NewTimer(s.o.StopTimeout + stopSlack)
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

const stopSlack = 250 * time.Millisecond
