package supervisor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// state is the data behind Status. It is immutable.
type state struct {
	life    life           // the running session; nil: none
	serves  bool           // its sources are published
	lists   uint64         // its change of the list
	since   time.Time      // when it began to serve
	sources []*view.Source // the published sources
	cause   session.Cause  // why no session is in service
	reason  string
	absent  []session.DeviceStatus
	// former holds the devices that a release has removed from the page. Until until, it holds the devices of a session
	// that was ended on purpose: they keep their states, because the next session is about to replace it.
	former []session.DeviceStatus
	until  time.Time
}

// up reports whether the collector counts as up.
func (t *state) up() bool { return t.serves || time.Now().Before(t.until) }

// devices returns the devices that were or are in service, without the absent ones. The result may be shared. After the
// unexpected end of a child, a device is up until its next sample is overdue by the deadline.
func (t *state) devices(deadline time.Duration) []session.DeviceStatus {
	switch {
	case t.serves:
		out := t.life.states()
		i := 0
		for _, s := range t.sources {
			for j := range s.Devices {
				if i < len(out) {
					out[i].Device = s.Devices[j]
				}
				i++
			}
		}
		return out
	case len(t.sources) == 0 || time.Now().Before(t.until):
		return t.former
	}
	var out, said []session.DeviceStatus
	if t.cause == session.CauseStuck && t.life != nil && heldBy(t.life.states()) != "" {
		said = t.life.states()
	}
	var row ring.Row
	for _, s := range t.sources {
		sampled := s.Latest(&row)
		for i := range s.Devices {
			d := session.DeviceStatus{Device: s.Devices[i], State: session.Stalled, Cause: t.cause, Reason: t.reason}
			if sampled && row.Stamps[i] != 0 {
				d.LastSample = time.Unix(0, row.Stamps[i])
				if t.cause == session.CauseChild && time.Since(d.LastSample) < s.IntervalOf(i)+deadline {
					d.State, d.Cause, d.Reason = session.Up, session.CauseNone, ""
				}
			}
			if n := len(out); n < len(said) && !said[n].Cause.Hangs() {
				d.Cause = session.CauseChild // only the others hang
			}
			out = append(out, d)
		}
	}
	return out
}

// Status returns the state of the collector and its devices, absent ones included. It reads memory only.
func (s *Supervisor) Status() session.CollectorStatus {
	t := s.now.Load()
	out := session.CollectorStatus{Name: s.o.Name, Up: t.up(), Cause: t.cause, Reason: t.reason, Since: t.since}
	if s.o.Hidden && t.cause == session.CauseStandby {
		return out
	}
	out.Devices = append(slices.Clip(t.devices(s.o.Session.Deadline)), t.absent...)
	return out
}

// Serves reports whether the session in service has the wanted list.
func (s *Supervisor) Serves() bool {
	t := s.now.Load()
	return t.serves && t.lists == s.request().lists
}

// setProblem records why no session is in service.
func (s *Supervisor) setProblem(cause session.Cause, reason string) {
	s.now.Store(&state{
		sources: s.shown, cause: cause, reason: reason, absent: s.inventory.missing(time.Now()), former: s.inventory.parted,
	})
}

// setHandover records that a session was ended on purpose.
func (s *Supervisor) setHandover() {
	old := s.now.Load()
	next := &state{sources: s.shown, absent: old.absent, former: s.inventory.parted}
	next.handOver(old, old.up(), s.o.Session.Deadline)
	s.now.Store(next)
}

// handOver keeps the devices of a session that ends, if it was up, for the given time.
func (t *state) handOver(from *state, up bool, d time.Duration) {
	t.cause, t.reason = session.CauseOpening, "being opened again"
	if up {
		t.former, t.until = from.devices(d), time.Now().Add(d)
	}
}

// show records the state of the current session.
func (s *Supervisor) show(t *turn) {
	old := s.now.Load()
	next := &state{
		life: t.life, lists: t.lists, serves: !t.published.IsZero() && t.stopped.IsZero(), sources: s.shown, cause: old.cause, reason: old.reason,
		absent: s.inventory.missing(time.Now()), former: old.former, until: old.until,
	}
	c, isChild := t.life.(*child)
	switch {
	case next.serves:
		next.since = t.published
		next.cause, next.reason, next.former, next.until = session.CauseNone, "", nil, time.Time{}
		if s.refused == s.request().lists {
			next.cause, next.reason = session.CauseError, "the new list cannot be opened, the former one is in service"
		} else if c := t.life.costs(); c != nil && c.LeftOut > 0 {
			next.reason = fmt.Sprintf("devices that cannot be read or shown: %d; the log names them", c.LeftOut)
		}
	case isChild && c.stuck.Load():
		next.cause, next.reason = session.CauseStuck, t.life.held()
	case !t.stopped.IsZero() && old.serves && !s.request().rests():
		next.handOver(old, true, s.o.Session.Deadline)
	}
	s.now.Store(next)
}

// logStates logs each device whose state differs from the last logged one.
func (s *Supervisor) logStates(t *turn) {
	if t.published.IsZero() || !t.stopped.IsZero() || s.o.Hidden {
		return
	}
	if len(s.logged) > session.MaxDevices {
		clear(s.logged) // a library may give its devices other IDs each time
	}
	for _, d := range s.Status().Devices {
		id, now := d.Device.ID, d.State.String()
		was := s.logged[id]
		starting := d.Cause == session.CauseStarting || d.LastSample.IsZero() && time.Since(t.published) < startPatience
		if starting || d.State == session.Released || d.State == session.Absent || was == now || was == "" && d.State == session.Up {
			continue
		}
		s.logged[id] = now
		if d.Device.Parent != "" {
			continue // reported once, for the GPU
		}
		log := s.log.With(zap.String("device", id), zap.String("gpu", d.Device.GPU), zap.String("state", now))
		if d.State == session.Up {
			log.Info("device is up again")
		} else {
			log.Warn("device is not up", zap.String("cause", string(d.Cause)), zap.String("reason", d.Reason), lastSample(d.LastSample))
		}
	}
}

// lastSample omits the field if there was no sample.
func lastSample(at time.Time) zap.Field {
	if at.IsZero() {
		return zap.Skip()
	}
	return zap.Time("last_sample", at)
}

// quiet is the back-off of a collector that has nothing to sample on this machine.
type quiet struct {
	pause  time.Duration
	reason string
}

// quietly logs each reason once and returns the next pause. A node without a vendor's GPUs is not a fault.
func (s *Supervisor) quietly(level zapcore.Level, reason string) time.Duration {
	q := &s.quiet
	q.pause = min(max(2*q.pause, time.Second), s.o.RestartMax)
	if q.reason != reason {
		q.reason = reason
		s.log.Log(level, "collector found nothing to sample; looking again from time to time", zap.String("reason", reason))
	}
	return q.pause
}

// maxNames bounds the field names in one log line.
const maxNames = 12

// logFields logs the fields of the list that no device has, and the fields that are read in addition to the list.
func (s *Supervisor) logFields(sources []*view.Source) {
	s.logNames(&s.loggedAbsent, "no device has some fields of the list; run warpgauge check for the reasons", absentEverywhere(sources))
	s.logNames(&s.loggedAdded, "reading fields that the list does not name; --health=off reads fewer", view.Added(sources, false))
	s.logNames(&s.loggedNamed, "reading fields that the list does not name, for --field-names", view.Added(sources, true))
}

// logNames logs names, unless they are the last logged ones.
func (s *Supervisor) logNames(last *string, message string, names []string) {
	n, text := len(names), strings.Join(names[:min(len(names), maxNames)], ", ")
	if n > maxNames {
		text += fmt.Sprintf(" and %d more", n-maxNames)
	}
	if n > 0 && text != *last {
		s.log.Info(message, zap.Int("fields", n), zap.String("field", text))
	}
	*last = text
}

// absentEverywhere returns the names of the list's fields that no device has.
func absentEverywhere(sources []*view.Source) (names []string) {
	columns, labels := map[field.ID]bool{}, map[string]bool{}
	for _, s := range sources {
		for _, c := range s.Columns {
			columns[c.Field] = true
		}
		for i := range s.Devices {
			for _, l := range s.Devices[i].Facts {
				labels[l.Name] = true
			}
		}
	}
	for _, f := range sources[0].Fields.Fields {
		id := f.Desc.ID
		if in, computed := field.Input(f.Desc); computed {
			id = in.ID
		}
		if !columns[id] && !labels[f.Name] && !slices.Contains(names, f.Name) {
			names = append(names, f.Name)
		}
	}
	return names
}
