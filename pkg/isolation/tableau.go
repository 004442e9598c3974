package isolation

import (
	"cmp"
	"slices"
	"time"

	"warpgauge/pkg/ring"
	"warpgauge/pkg/sampler"
)

// tableau is what Status is made of, besides the rings. It is immutable.
type tableau struct {
	session *session // that serves, if it is alive
	pid     int      // of the child that serves or is being started; 0: none
	shown   []*boundSource
	parted  []sampler.DeviceStatus // that a release took off the board; their causes follow cause
	cause   sampler.Cause          // why there is no session
	reason  string
	alive   []*session // every child that is not gone
}

// setProblem is called by Run.
func (s *Supervisor) setProblem(cause sampler.Cause, reason string) {
	t := *s.state.Load()
	t.cause, t.reason = cause, reason
	s.state.Store(&t)
}

// paint is called by Run after every step.
func (s *Supervisor) paint() {
	if s.serving != nil && !s.serving.isDone() {
		s.publish()
	}
	old := s.state.Load()
	t := &tableau{shown: s.shown, parted: s.parted, cause: old.cause, reason: old.reason, alive: slices.Clone(s.retired)}
	for _, c := range []*session{s.serving, s.candidate} {
		if c != nil {
			t.alive = append(t.alive, c)
		}
	}
	if c := s.candidate; c != nil && s.handingOver() {
		t.session, t.pid = c, c.pid
	} else if v := s.serving; v != nil && !v.isDone() {
		t.session, t.pid = v, v.pid
		if v.stuck.Load() {
			t.session, t.cause, t.reason = nil, sampler.CauseStuck, "the process was killed and does not go: it is in the kernel for good"
		} else if v.ending() {
			t.session, t.cause, t.reason = nil, sampler.CauseChild, "the process is being ended"
		}
	} else if c := s.candidate; c != nil {
		t.pid = c.pid
		if st := c.state.Load(); st != nil && !st.up && st.cause != string(sampler.CauseOpening) {
			t.cause, t.reason = sampler.Cause(st.cause), st.reason
		}
		if c.stuck.Load() {
			t.cause, t.reason = sampler.CauseStuck, "the process was killed and does not go: it is in the kernel for good"
		}
		version, _ := s.wished()
		if t.cause != sampler.CauseOpening && t.cause != sampler.CauseChild && len(s.shown) == 0 {
			s.answer(version, nil) // nothing to serve
		}
	}
	s.state.Store(t)
}

// handingOver reports whether candidate samples already what is on the page from
// the child that makes room for it.
func (s *Supervisor) handingOver() bool {
	return s.serving != nil && s.serving.ending() && !s.serving.stuck.Load() && s.handOverAt.After(s.servingAt)
}

// Status tells the state of the collector and its devices, as a sampler does. It
// reads memory only.
func (s *Supervisor) Status() []sampler.CollectorStatus {
	t := s.state.Load()
	out := sampler.CollectorStatus{Name: s.o.Name, Cause: t.cause, Reason: t.reason}
	var st *status
	if t.session != nil {
		st = t.session.state.Load()
		out.Up, out.Cause, out.Reason = true, sampler.CauseNone, ""
		if st != nil {
			out.Cause, out.Reason = sampler.Cause(st.cause), st.reason
			if out.Cause == sampler.CauseOpening { // said before it was in service
				out.Cause, out.Reason = sampler.CauseNone, ""
			}
			out.Up = st.up || out.Cause == sampler.CauseNone
		}
	} else {
		out.Devices = t.partedDevices()
	}
	places := make(map[uint64]int, len(t.shown)) // of the first device of a source
	var row ring.Row
	for _, b := range t.shown {
		places[b.id] = len(out.Devices)
		sampled := b.ring.Latest(&row)
		for i := range b.devices {
			d := sampler.DeviceStatus{Device: b.devices[i]}
			if sampled && row.Stamps[i] != 0 {
				d.LastSample = time.Unix(0, row.Stamps[i])
			}
			if t.session == nil {
				d.State, d.Cause, d.Reason = sampler.Stalled, t.cause, t.reason
			} else if d.LastSample.IsZero() {
				d.State, d.Cause, d.Reason = sampler.Stalled, sampler.CauseStarting, "not sampled yet"
			}
			out.Devices = append(out.Devices, d)
		}
	}
	if st != nil {
		except(out.Devices, t.shown, places, st)
		missing := slices.Clone(st.missing)
		slices.SortFunc(missing, func(a, b sampler.DeviceStatus) int { return cmp.Compare(a.Device.ID, b.Device.ID) })
		out.Devices = append(out.Devices, missing...)
	}
	return []sampler.CollectorStatus{out}
}

// except applies what the child says of devices that are not up.
func except(devices []sampler.DeviceStatus, shown []*boundSource, places map[uint64]int, st *status) {
	sizes := make(map[uint64]int, len(shown))
	for _, b := range shown {
		sizes[b.id] = len(b.devices)
	}
	for i := range st.devices {
		e := &st.devices[i]
		if e.device < sizes[e.source] {
			d := &devices[places[e.source]+e.device]
			d.State, d.Cause, d.Reason = e.state, sampler.Cause(e.cause), e.reason
		}
	}
}
