package lists

import (
	"context"
	"time"

	"go.uber.org/zap"
)

const profilingKey = "" // of ends; no collector has it

// PauseProfiling returns when no profiling field is read any more. Only one client at a time can use the hardware behind
// these fields, so a profiler such as Nsight Compute finds it free then. The pause ends after limit; 0 means the usual
// time, a negative limit never. After an error the pause stays wanted.
func (d *Desk) PauseProfiling(ctx context.Context, limit time.Duration, cause string) error {
	if limit == 0 {
		limit = d.usual
	}
	d.log.Named("profiling").Info("pausing", zap.String("cause", cause), zap.Duration("for", max(limit, 0)))
	// Before the Turn, which a reload may hold for long: the end of the former pause must not end this one.
	d.ends.schedule(profilingKey, limit, func(e *ending) { d.endPause(e, limit) })
	return d.setPaused(ctx, true, cause, nil)
}

// ResumeProfiling ends a pause.
func (d *Desk) ResumeProfiling(ctx context.Context, cause string) error {
	return d.setPaused(ctx, false, cause, func() bool {
		d.log.Named("profiling").Info("resuming", zap.String("cause", cause))
		d.ends.schedule(profilingKey, 0, nil)
		return true
	})
}

// endPause ends a pause that no request has ended, unless a request has replaced it.
func (d *Desk) endPause(e *ending, after time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), changeTimeout)
	defer cancel()
	log := d.log.Named("profiling")
	err := d.setPaused(ctx, false, "end of the pause", func() bool {
		return d.ends.claim(profilingKey, e, func() {
			log.Warn("the pause was not resumed and ends by itself", zap.Duration("after", after))
		})
	})
	if err != nil {
		log.Error("profiling is not read again everywhere", zap.Error(err))
	}
}

// setPaused pauses or resumes in its turn, if proceed, which is called in the turn, does not return false.
func (d *Desk) setPaused(ctx context.Context, paused bool, cause string, proceed func() bool) error {
	t, err := d.Begin(ctx)
	if err != nil {
		return err
	}
	defer t.End()
	if proceed != nil && !proceed() {
		return nil
	}
	d.paused = paused
	d.update(func(s *Status) { s.Paused = paused })
	err = d.apply(ctx, d.wanted)
	text := "resumed"
	if paused {
		text = "paused"
	}
	d.answer(cause, kindProfiling, text, err)
	return err
}

// answer records what became of a pause or a release.
func (d *Desk) answer(by, kind, text string, err error) {
	p := Proposal{by, kind, stamp(time.Now()), Applied, text}
	if err != nil {
		p.Answer, p.Text = Failed, err.Error()
	}
	d.update(func(s *Status) { s.propose(p) })
}
