package isolation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/sampler"
	"warpgauge/pkg/view"
)

// Release lets the collector go, if name is its own or empty: its sources leave
// the page at once, and its child ends, and with it whatever the vendor's library
// held. It returns when the process is gone. If ctx ends first, the error says
// what is still there, and the release goes on in the background. No child is
// started before Resume; a Reload meanwhile is heeded then.
func (s *Supervisor) Release(ctx context.Context, name string) error {
	if err := s.isNamed(name); err != nil {
		return err
	}
	return s.letGoFor(ctx, sampler.RestReleased)
}

// Resume ends a release: a child is started again.
func (s *Supervisor) Resume(name string) error {
	if err := s.isNamed(name); err != nil {
		return err
	}
	s.rouse(sampler.RestReleased)
	return nil
}

// Standby puts the collector to rest, as Release does, because another serves
// its devices, or ends that. It and a release are two reasons to rest: a child is
// started again when neither is left.
func (s *Supervisor) Standby(ctx context.Context, name string, rest bool) error {
	if err := s.isNamed(name); err != nil {
		return err
	}
	if !rest {
		s.rouse(sampler.RestStandby)
		return nil
	}
	return s.letGoFor(ctx, sampler.RestStandby)
}

// letGoFor adds a reason to rest, and returns when the process is gone.
func (s *Supervisor) letGoFor(ctx context.Context, why sampler.Rest) error {
	done := make(chan error, 1)
	s.wishMu.Lock()
	s.letGo |= why
	s.releases = append(s.releases, done)
	s.wishMu.Unlock()
	poke(s.wake)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("let collector %q go: %w: %s", s.o.Name, ctx.Err(), s.holding())
	}
}

// rouse takes a reason back.
func (s *Supervisor) rouse(why sampler.Rest) {
	s.wishMu.Lock()
	s.letGo &^= why
	s.wishMu.Unlock()
	poke(s.wake)
}

func (s *Supervisor) isNamed(name string) error {
	if name != "" && name != s.o.Name {
		return fmt.Errorf("no collector %q", name)
	}
	return nil
}

// answerReleases tells those who wait for a release.
func (s *Supervisor) answerReleases(err error) {
	s.wishMu.Lock()
	defer s.wishMu.Unlock()
	for _, done := range s.releases {
		done <- err
	}
	s.releases = nil
}

var errOvertaken = errors.New("resumed before it was released")

// heedRelease begins or ends a release where that is wanted.
func (s *Supervisor) heedRelease() {
	s.wishMu.Lock()
	letGo := s.letGo
	var overtaken []chan error // taken with letGo: a release that comes now is not among them
	if letGo == 0 {
		overtaken, s.releases = s.releases, nil
	}
	s.wishMu.Unlock()
	for _, done := range overtaken {
		done <- errOvertaken
	}
	switch {
	case letGo != 0 && !s.released:
		s.released = true
		s.release()
		cause, reason := letGo.Why()
		s.setProblem(cause, reason)
		s.log.Info("collector is let go", zap.String("cause", string(cause)))
	case letGo != 0: // for another reason than before, maybe
		s.setProblem(letGo.Why())
	case s.released:
		s.released, s.startAt = false, time.Now()
		s.setProblem(sampler.CauseOpening, "being opened again after a release")
		s.log.Info("collector is resumed")
	}
}

// release takes what is shown off the board and ends the children. A child has as
// long as a tick to close its library itself: the kernel closes for one that is
// killed what it has open.
func (s *Supervisor) release() {
	s.startAt, s.idle = time.Time{}, 0
	s.parted = slices.DeleteFunc(s.Status()[0].Devices, func(d sampler.DeviceStatus) bool { return d.Cause == sampler.CauseVanished })
	grace := min(s.o.StopTimeout, max(s.o.Interval, leastGrace))
	for _, c := range []*session{s.serving, s.candidate} {
		switch {
		case c == nil:
		case c.isDone():
			s.metrics.retire(c)
		default:
			c.stop(verdict{quiet, "released"}, grace)
			s.retired = append(s.retired, c)
		}
	}
	s.serving, s.candidate = nil, nil
	if len(s.shown) > 0 {
		s.shown = nil
		s.o.Publish(&view.View{})
	}
}

// leastGrace is what a child gets to end at least, however short its tick.
const leastGrace = 250 * time.Millisecond

// settleRelease answers when no child is left.
func (s *Supervisor) settleRelease() {
	if s.released && len(s.retired) == 0 {
		s.answerReleases(nil)
	}
}

// holding says what a release waits for. Any goroutine.
func (s *Supervisor) holding() string {
	var left []string
	for _, c := range s.state.Load().alive {
		left = append(left, fmt.Sprintf("child %d has not ended", c.pid))
	}
	if len(left) == 0 {
		return "its child has just ended"
	}
	return strings.Join(left, ", ")
}

// partedDevices are those that a release took off the board, while nothing is
// there instead.
func (t *tableau) partedDevices() []sampler.DeviceStatus {
	if len(t.shown) > 0 || t.cause == sampler.CauseStandby {
		return nil
	}
	out := slices.Clone(t.parted)
	for i := range out {
		out[i].State, out[i].Cause, out[i].Reason = sampler.Stalled, t.cause, t.reason
		if t.cause == sampler.CauseReleased {
			out[i].State = sampler.Released
		}
	}
	return out
}

// outdated reports whether a child has said that its library no longer fits the
// driver, which only another process can mend.
func (s *Supervisor) outdated(c *session) bool {
	st := c.state.Load()
	return st != nil && st.cause == string(sampler.CauseOutdated) && !c.ending()
}

// replace ends a child whose process is of no use any more. Its rows stay on the
// page until the next one has some, or they are stale.
func (s *Supervisor) replace(c *session) {
	c.stop(verdict{ReasonOutdated, c.state.Load().reason}, s.o.StopTimeout)
}
