package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/server"
)

// releaseTimeout bounds how long a release by signal is waited for before what
// is still held is logged. It continues in the background all the same.
const releaseTimeout = 30 * time.Second

// releaser lets collectors go and has them resumed, by request, by signal, or
// because a release was forgotten.
type releaser struct {
	engine *engine
	usual  time.Duration // after which a release ends by itself; 0: never
	log    *zap.Logger

	mu   sync.Mutex
	ends map[string]*ending // by collector
}

// ending is the time at which something ends by itself. It is told apart from the
// one that replaces it by its address: the timer may fire before it is stored.
type ending struct{ timer *time.Timer }

func newReleaser(e *engine, usual time.Duration, log *zap.Logger) *releaser {
	return &releaser{engine: e, usual: usual, log: log.Named("release"), ends: make(map[string]*ending)}
}

// release lets a collector go, or all, and returns when nothing of it is held. It
// ends after limit; 0 means the usual one, a negative one never.
func (r *releaser) release(ctx context.Context, name string, limit time.Duration, cause string) error {
	names, err := r.names(name)
	if err != nil {
		return err
	}
	if limit == 0 {
		limit = r.usual
	}
	log := r.log.With(zap.Strings("collector", names), zap.String("cause", cause))
	log.Info("releasing", zap.Duration("for", max(limit, 0)))
	r.schedule(names, limit)
	begin := time.Now()
	if err := r.engine.Release(ctx, name); err != nil {
		log.Warn("not everything is released", zap.Error(err))
		return err
	}
	log.Info("released: nothing is held", zap.Duration("took", time.Since(begin)))
	return nil
}

// resume ends a release.
func (r *releaser) resume(name, cause string) error {
	names, err := r.names(name)
	if err != nil {
		return err
	}
	r.schedule(names, 0)
	r.log.Info("resuming", zap.Strings("collector", names), zap.String("cause", cause))
	r.engine.Resume(name)
	return nil
}

// names are the collectors that a name means.
func (r *releaser) names(name string) ([]string, error) {
	var all []string
	for _, c := range r.engine.Status() {
		all = append(all, c.Name)
	}
	switch {
	case name == "":
		return all, nil
	case slices.Contains(all, name):
		return []string{name}, nil
	}
	return nil, fmt.Errorf("%w: %q; there are %q", server.ErrUnknownCollector, name, all)
}

// schedule replaces the times at which collectors are resumed; one that is not
// positive means never.
func (r *releaser) schedule(names []string, limit time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range names {
		if e := r.ends[name]; e != nil {
			e.timer.Stop()
			delete(r.ends, name)
		}
		if limit > 0 {
			e := new(ending)
			e.timer = time.AfterFunc(limit, func() { r.forgotten(name, e, limit) })
			r.ends[name] = e
		}
	}
}

// forgotten ends a release that no request has ended, unless its timer was replaced.
func (r *releaser) forgotten(name string, e *ending, after time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ends[name] != e {
		return
	}
	delete(r.ends, name)
	r.log.Warn("the release was not resumed and ends by itself", zap.String("collector", name), zap.Duration("after", after))
	r.engine.Resume(name)
}

// run releases and resumes all collectors on signals until ctx ends. A release
// that takes long does not delay the signal that ends it.
func (r *releaser) run(ctx context.Context, letGo, resume <-chan os.Signal) error {
	var wg sync.WaitGroup
	defer func() {
		wg.Wait()
		r.schedule(r.scheduled(), 0)
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-letGo:
			wg.Go(func() {
				rctx, cancel := context.WithTimeout(ctx, releaseTimeout)
				defer cancel()
				_ = r.release(rctx, "", 0, "SIGUSR1") // it has logged the error
			})
		case <-resume:
			_ = r.resume("", "SIGUSR2") // there is no name to be wrong
		}
	}
}

func (r *releaser) scheduled() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.ends {
		names = append(names, name)
	}
	return names
}
