package lists

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
)

// releaseTimeout bounds how long a release by signal waits before the log names the collectors still held. The release
// continues in the background.
const releaseTimeout = 30 * time.Second

// unknownCollectorError is the error of Release and Resume for an unknown name. It wraps fs.ErrNotExist.
type unknownCollectorError struct{ error }

func (unknownCollectorError) Is(target error) bool { return target == fs.ErrNotExist }

// Release releases a collector, or all collectors if the name is empty, and returns when all its resources are free.
// The release ends after limit; 0 means the default, a negative limit never. A release changes no list, so it does not
// wait for its turn.
func (d *Desk) Release(ctx context.Context, name string, limit time.Duration, cause string) error {
	names, err := d.names(name)
	if err != nil {
		return err
	}
	limit = cmp.Or(limit, d.o.Usual)
	log := d.o.Logger.Named("release").With(zap.Strings("collector", names), zap.String("cause", cause))
	log.Info("releasing", zap.Duration("for", max(limit, 0)))
	d.setEnds(limit, names...)
	begin := time.Now()
	err = d.o.Engine.Release(ctx, name)
	d.answer(cause, kindRelease, "released "+strings.Join(names, ", "), err)
	if err != nil {
		log.Warn("cannot release all collectors", zap.Error(err))
		return err
	}
	log.Info("released all devices", zap.Duration("took", time.Since(begin)))
	return nil
}

// Resume ends a release.
func (d *Desk) Resume(name, cause string) error {
	names, err := d.names(name)
	if err != nil {
		return err
	}
	d.setEnds(0, names...)
	d.o.Logger.Named("release").Info("resuming", zap.Strings("collector", names), zap.String("cause", cause))
	d.o.Engine.Resume(name)
	d.answer(cause, kindResume, "resumed "+strings.Join(names, ", "), nil)
	return nil
}

func (d *Desk) names(name string) ([]string, error) {
	all := d.o.Engine.Names()
	switch {
	case name == "":
		return all, nil
	case slices.Contains(all, name):
		return []string{name}, nil
	}
	return nil, unknownCollectorError{fmt.Errorf("no such collector is enabled: %q; there are %q", name, all)}
}

// setEnds replaces the times at which releases, or a pause, end by themselves. A limit that is not positive means never.
func (d *Desk) setEnds(limit time.Duration, keys ...string) {
	d.endsMu.Lock()
	defer d.endsMu.Unlock()
	for _, key := range keys {
		delete(d.ends, key)
		if limit > 0 {
			d.ends[key] = time.Now().Add(limit)
		}
	}
}

// end calls f if the time of key is over. A request that replaces the time waits until f returns.
func (d *Desk) end(key string, f func()) (over bool) {
	d.endsMu.Lock()
	defer d.endsMu.Unlock()
	at, known := d.ends[key]
	if !known || time.Now().Before(at) {
		return false
	}
	delete(d.ends, key)
	f()
	return true
}

func (d *Desk) endReleases() {
	for _, name := range d.o.Engine.Names() {
		d.end(name, func() {
			d.o.Logger.Named("release").Warn("ending a release that was not resumed in time", zap.String("collector", name))
			d.o.Engine.Resume(name)
			d.answer("end of the release", kindResume, "resumed "+name, nil)
		})
	}
}

// runReleases releases and resumes all collectors on signals, and ends releases, until ctx ends. A release that takes
// long does not delay the signal that ends it.
func (d *Desk) runReleases(ctx context.Context, s Signals) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.Release:
			wg.Go(func() {
				rctx, cancel := context.WithTimeout(ctx, releaseTimeout)
				defer cancel()
				_ = d.Release(rctx, "", 0, "SIGUSR1") // it has logged the error
			})
		case <-d.o.Tick(endsEvery):
			d.endReleases()
		case <-s.Resume:
			_ = d.Resume("", "SIGUSR2") // an empty name is never unknown
		}
	}
}

const profilingKey = "" // of Desk.ends; no collector has it

// PauseProfiling returns when no profiling field is read any more. Only one client at a time can use the hardware
// behind these fields, so a profiler such as Nsight Compute can use it then. The pause ends after limit; 0 means the
// default, a negative limit never. After an error the pause is still requested.
func (d *Desk) PauseProfiling(ctx context.Context, limit time.Duration, cause string) error {
	limit = cmp.Or(limit, d.o.Usual)
	d.o.Logger.Named("profiling").Info("pausing", zap.String("cause", cause), zap.Duration("for", max(limit, 0)))
	// Before the Turn, which a reload may hold for long: the end of the previous pause must not end this one.
	d.setEnds(limit, profilingKey)
	return d.setPaused(ctx, true, cause, nil)
}

// ResumeProfiling ends a pause.
func (d *Desk) ResumeProfiling(ctx context.Context, cause string) error {
	return d.setPaused(ctx, false, cause, func() bool {
		d.o.Logger.Named("profiling").Info("resuming", zap.String("cause", cause))
		d.setEnds(0, profilingKey)
		return true
	})
}

// endPause ends a pause whose time is over.
func (d *Desk) endPause(ctx context.Context) {
	d.endsMu.Lock()
	at, known := d.ends[profilingKey]
	d.endsMu.Unlock()
	if !known || time.Now().Before(at) {
		return
	}
	limited, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	log := d.o.Logger.Named("profiling")
	err := d.setPaused(limited, false, "end of the pause", func() bool { // a request may replace the pause before its turn
		return d.end(profilingKey, func() { log.Warn("ending a pause that was not resumed in time") })
	})
	if err != nil && ctx.Err() == nil {
		log.Error("cannot resume profiling on all collectors", zap.Error(err))
	}
}

// setPaused waits for its turn, calls proceed, and pauses or resumes unless proceed returned false.
func (d *Desk) setPaused(ctx context.Context, paused bool, cause string, proceed func() bool) error {
	t, err := d.Begin(ctx)
	if err != nil {
		return err
	}
	defer t.End()
	if proceed != nil && !proceed() {
		return nil
	}
	d.update(func(s *Status) { s.Paused = paused })
	s := d.Status()
	err = d.apply(ctx, s.wanted().Fields)
	text := "resumed"
	if paused {
		text = "paused"
	}
	d.answer(cause, kindProfiling, text, err)
	return err
}

func (d *Desk) answer(by, kind, text string, err error) {
	p := Proposal{by, kind, stamp(time.Now()), Applied, text}
	if err != nil {
		p.Answer, p.Text = Failed, err.Error()
	}
	if kind == kindRelease && errors.Is(err, context.DeadlineExceeded) {
		p.Answer, p.Text = Waiting, "the release continues: "+p.Text
	}
	d.update(func(s *Status) { s.propose(p) })
}
