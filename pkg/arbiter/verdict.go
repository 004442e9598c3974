package arbiter

import "time"

// speaker says whose values of the GPUs are shown.
type speaker uint8

const (
	nobody speaker = iota // neither has values yet: both are shown, whoever comes
	primary
	secondary
)

// sight is what was seen at one time: the newest value of each side's GPUs, zero
// if there is none.
type sight struct{ primary, secondary time.Time }

// verdict is who speaks, and what it takes to change that.
type verdict struct {
	speaker speaker
	moving  time.Time // since when the primary's values have moved without a gap; zero: they do not
	since   time.Time // since when the speaker speaks
	spoken  bool      // the primary has spoken before
}

// judge changes the speaker where it must.
func (v *verdict) judge(seen sight, now time.Time, o Options) {
	fresh := func(t time.Time) bool { return v.fresh(t, now, o) }
	switch {
	case !fresh(seen.primary):
		v.moving = time.Time{}
	case v.moving.IsZero():
		v.moving = now
	}
	next := v.speaker
	switch v.speaker {
	case nobody:
		if fresh(seen.primary) {
			next = primary
		} else if fresh(seen.secondary) {
			next = secondary
		}
	case primary:
		if !fresh(seen.primary) && fresh(seen.secondary) {
			next = secondary
		}
	case secondary:
		if v.trusts(now, o) || fresh(seen.primary) && !fresh(seen.secondary) {
			next = primary
		}
	}
	if next != v.speaker {
		v.speaker, v.since = next, now
		v.spoken = v.spoken || next == primary
	}
}

// fresh reports whether a value of time t is new enough to speak.
func (*verdict) fresh(t, now time.Time, o Options) bool {
	return !t.IsZero() && now.Sub(t) <= o.Patience
}

// trusts reports whether the primary's values have moved for long enough. A
// primary that has not failed yet is trusted at once.
func (v *verdict) trusts(now time.Time, o Options) bool {
	return !v.moving.IsZero() && (!v.spoken || now.Sub(v.moving) >= o.Confidence)
}

// rested reports whether the secondary may sleep: the primary has spoken, with
// values that move, for as long as confidence takes.
func (v *verdict) rested(seen sight, now time.Time, o Options) bool {
	return v.speaker == primary && v.fresh(seen.primary, now, o) && now.Sub(v.since) >= o.Confidence
}
