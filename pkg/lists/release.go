package lists

import (
	"context"
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
	if limit == 0 {
		limit = d.o.Usual
	}
	log := d.o.Logger.Named("release").With(zap.Strings("collector", names), zap.String("cause", cause))
	log.Info("releasing", zap.Duration("for", max(limit, 0)))
	d.scheduleResume(names, limit)
	begin := time.Now()
	err = d.o.Engine.Release(ctx, name)
	d.answer(cause, kindRelease, "released "+strings.Join(names, ", "), err)
	if err != nil {
		log.Warn("cannot release all collectors", zap.Error(err))
		return err
	}
	log.Info("released: nothing is held", zap.Duration("took", time.Since(begin)))
	return nil
}

// Resume ends a release.
func (d *Desk) Resume(name, cause string) error {
	names, err := d.names(name)
	if err != nil {
		return err
	}
	d.scheduleResume(names, 0)
	d.o.Logger.Named("release").Info("resuming", zap.Strings("collector", names), zap.String("cause", cause))
	d.o.Engine.Resume(name)
	d.answer(cause, kindRelease, "resumed "+strings.Join(names, ", "), nil)
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

// scheduleResume replaces the times at which collectors resume by themselves.
func (d *Desk) scheduleResume(names []string, limit time.Duration) {
	for _, name := range names {
		d.ends.schedule(name, limit, func(e *ending) {
			d.ends.claim(name, e, func() {
				d.o.Logger.Named("release").Warn("the release was not resumed and ends by itself", zap.String("collector", name), zap.Duration("after", limit))
				d.o.Engine.Resume(name)
				d.answer("end of the release", kindRelease, "resumed "+name, nil)
			})
		})
	}
}

// runReleases releases and resumes all collectors on signals until ctx ends. A release that takes long does not delay
// the signal that ends it.
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
		case <-s.Resume:
			_ = d.Resume("", "SIGUSR2") // an empty name is never unknown
		}
	}
}

const profilingKey = "" // of ends; no collector has it

// PauseProfiling returns when no profiling field is read any more. Only one client at a time can use the hardware
// behind these fields, so a profiler such as Nsight Compute can use it then. The pause ends after limit; 0 means the
// default, a negative limit never. After an error the pause is still requested.
func (d *Desk) PauseProfiling(ctx context.Context, limit time.Duration, cause string) error {
	if limit == 0 {
		limit = d.o.Usual
	}
	d.o.Logger.Named("profiling").Info("pausing", zap.String("cause", cause), zap.Duration("for", max(limit, 0)))
	// Before the Turn, which a reload may hold for long: the end of the previous pause must not end this one.
	d.ends.schedule(profilingKey, limit, func(e *ending) { d.endPause(e, limit) })
	return d.setPaused(ctx, true, cause, nil)
}

// ResumeProfiling ends a pause.
func (d *Desk) ResumeProfiling(ctx context.Context, cause string) error {
	return d.setPaused(ctx, false, cause, func() bool {
		d.o.Logger.Named("profiling").Info("resuming", zap.String("cause", cause))
		d.ends.schedule(profilingKey, 0, nil)
		return true
	})
}

// endPause ends a pause that no request has ended, unless a request has replaced it.
func (d *Desk) endPause(e *ending, after time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), changeTimeout)
	defer cancel()
	log := d.o.Logger.Named("profiling")
	err := d.setPaused(ctx, false, "end of the pause", func() bool {
		return d.ends.claim(profilingKey, e, func() {
			log.Warn("the pause was not resumed and ends by itself", zap.Duration("after", after))
		})
	})
	if err != nil {
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

func (d *Desk) answer(by, kind, text string, err error) {
	p := Proposal{by, kind, stamp(time.Now()), Applied, text}
	if err != nil {
		p.Answer, p.Text = Failed, err.Error()
	}
	d.update(func(s *Status) { s.propose(p) })
}

// ends holds the times at which pauses and releases end by themselves, by collector.
type ends struct {
	mu sync.Mutex
	at map[string]*ending
}

// ending is one such time. Its address distinguishes it from its replacement, because the timer may fire before it is
// stored.
type ending struct{ timer *time.Timer }

// schedule replaces the time of key. A limit that is not positive means never.
func (s *ends) schedule(key string, limit time.Duration, f func(*ending)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.at[key]; e != nil {
		e.timer.Stop()
		delete(s.at, key)
	}
	if limit > 0 {
		e := new(ending)
		e.timer = time.AfterFunc(limit, func() { f(e) })
		s.at[key] = e
	}
}

// claim removes e and calls f, unless another time has replaced e. A request that replaces it waits until f returns.
func (s *ends) claim(key string, e *ending, f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at[key] != e {
		return false
	}
	delete(s.at, key)
	f()
	return true
}

func (s *ends) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.at {
		e.timer.Stop()
	}
	clear(s.at)
}
