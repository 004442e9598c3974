package isolation

import (
	"context"
	"fmt"
	"time"

	"warpgauge/pkg/sampler"
)

// watch looks after the child until ctx ends.
func (s *session) watch(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.look(time.Now())
		}
	}
}

// lookEvery is how often a child is looked at.
const lookEvery = 250 * time.Millisecond

func (s *session) look(now time.Time) {
	s.frames.Store(0)
	s.relay.tick()
	if u, err := readUsage(s.pid); err == nil {
		s.usage.Store(&u)
		if limit := s.o.MemoryLimit; limit > 0 && u.resident > limit {
			if u.resident > 2*limit && u.resident > limit+(512<<20) {
				s.kill(ReasonMemory, fmt.Sprintf("took %d MiB, the limit is %d", u.resident>>20, limit>>20))
			}
			s.overLimit.Store(true)
			s.notify()
		}
	}
	s.mu.Lock()
	ended := s.ended
	s.mu.Unlock()
	if !ended.IsZero() {
		if now.Sub(ended) > s.o.killGrace && !s.stuck.Swap(true) {
			s.log.Error("child does not end after SIGKILL and is abandoned; no other is started before it is gone")
			s.notify()
		}
		return
	}
	if silent := now.Sub(s.born) - time.Duration(s.heard.Load()); silent > s.o.Silence {
		s.kill(ReasonHung, fmt.Sprintf("silent for %v", silent.Round(100*time.Millisecond)))
		return
	}
	s.lookForHang(now)
}

// killGrace is how long SIGKILL may take. A process in an uninterruptible sleep
// takes for ever.
const killGrace = 5 * time.Second

// lookForHang kills a child of which every call hangs. One hung GPU is no reason:
// the others would lose their child.
func (s *session) lookForHang(now time.Time) {
	st := s.state.Load()
	if st == nil {
		return
	}
	shown := s.shown.Load()
	if shown == nil {
		if limit := s.o.OpenTimeout + s.o.Deadline; st.cause == string(sampler.CauseOpening) && now.Sub(s.born) > limit {
			s.kill(ReasonHung, fmt.Sprintf("has not opened its library after %v", limit))
		}
		return
	}
	devices, hung := 0, 0
	for _, b := range *shown {
		devices += len(b.devices)
	}
	for i := range st.devices {
		if st.devices[i].cause == string(sampler.CauseHung) {
			hung++
		}
	}
	switch {
	case devices == 0 || hung < devices:
		s.hungFor = time.Time{}
	case s.hungFor.IsZero():
		s.hungFor = now
	case now.Sub(s.hungFor) > s.o.hangLimit():
		s.kill(ReasonHung, "no library call returns")
	}
}

// hangs reports whether a call of the child hangs.
func (s *session) hangs() bool {
	if st := s.state.Load(); st != nil {
		for i := range st.devices {
			if c := sampler.Cause(st.devices[i].cause); c == sampler.CauseHung || c == sampler.CauseWaiting {
				return true
			}
		}
	}
	return false
}
