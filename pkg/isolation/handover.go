package isolation

import (
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/view"
)

// ready reports whether c can take over: it has its sources in service, and rows
// for the devices that have fresh ones on the page.
func (s *Supervisor) ready(c *session, now time.Time) bool {
	shown := c.shown.Load()
	if shown == nil || c.ending() {
		return false
	}
	if s.boundAt.IsZero() {
		s.boundAt = now
	}
	return len(s.shown) == 0 || now.Sub(s.boundAt) > s.o.Deadline || hasRows(*shown, s.freshDevices(now))
}

// handedOver ends the child in service, which c replaces, and reports whether c has
// read everything once more since. Until then the last rows of the old one stay on
// the page: a counter that went back would be a reset to Prometheus. Times of rows
// do not tell which of two is newer: they are when a call began, and what is slow to
// read is read at other times than its row.
func (s *Supervisor) handedOver(c *session, now time.Time) bool {
	old := s.serving
	if old == nil {
		return true
	}
	if !s.handOverAt.After(s.servingAt) {
		s.handOverAt = now
	}
	if !old.isDone() && !old.ending() {
		old.stop(verdict{ReasonMemory, "grew over the memory limit"}, s.o.StopTimeout)
		s.log.Warn("child was over the memory limit and is replaced", zap.Int("pid", old.pid),
			zap.Int64("resident_bytes", old.usage.Load().resident), zap.Int64("limit_bytes", s.o.MemoryLimit))
	}
	switch waited := now.Sub(s.handOverAt); {
	case waited > s.o.StopTimeout+s.o.Deadline+answerPatience:
		return true // old does not end although it was killed, or a call of c hangs
	case !old.isDone():
		return false
	}
	return !c.beside || c.hasSampledAgain()
}

// answerPatience is how long a word of the child may be on its way.
const answerPatience = time.Second

// hasSampledAgain asks the child, once, to sample everything, and reports whether
// it has.
func (s *session) hasSampledAgain() bool {
	if !s.asked {
		s.asked = true
		if err := s.conn.send(kindAgain, empty{}); err != nil {
			s.sendFailed(err)
		}
	}
	return s.again.Load()
}

// takeOver puts c into service and forgets the child before it.
func (s *Supervisor) takeOver(c *session, now time.Time) {
	old := s.serving
	s.serving, s.candidate, s.servingAt = c, nil, now
	s.publish()
	c.relay.release(s.restedFor)
	s.idle, s.restedFor, s.parted = 0, "", nil
	s.startAt = time.Time{}
	switch {
	case old == nil:
	case old.isDone():
		s.metrics.retire(old)
		if !old.counted {
			s.metrics.restarted(old.verdict.reason)
		}
	default: // still closes its library
		s.metrics.restarted(ReasonMemory)
		s.retired = append(s.retired, old)
	}
	s.log.Info("child is in service", zap.Int("pid", c.pid))
}

// publish shows what the serving child has in service.
func (s *Supervisor) publish() {
	shown := *s.serving.shown.Load()
	if same(shown, s.shown) {
		return
	}
	s.shown = shown
	v := &view.View{}
	for _, b := range shown {
		v.Sources = append(v.Sources, b.view)
	}
	s.o.Publish(v)
}

func same(a, b []*boundSource) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
