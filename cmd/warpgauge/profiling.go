package main

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/pkg/field"
)

// profiler is between the reloader and the engine. While profiling is paused it
// takes the profiling fields out of every list, so that nothing reads them: the
// hardware behind them serves one client at a time, so that a profiler such as
// Nsight Compute finds it free. That is the same for all collectors, in whichever process.
type profiler struct {
	apply func(context.Context, field.List) error
	usual time.Duration // after which a pause ends by itself; 0: never
	log   *zap.Logger
	gauge prometheus.Gauge

	turn   chan struct{} // holds one token while a list is put in service
	list   field.List    // with everything; of the holder of the turn
	paused bool          // of the holder of the turn

	mu  sync.Mutex
	end *ending
}

func newProfiler(list field.List, apply func(context.Context, field.List) error, usual time.Duration, log *zap.Logger) *profiler {
	return &profiler{
		apply: apply, usual: usual, log: log.Named("profiling"), list: list, turn: make(chan struct{}, 1),
		gauge: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "warpgauge_profiling_paused",
			Help: "1 while profiling fields (DCGM_FI_PROF_…) are not read because they are paused.",
		}),
	}
}

func (p *profiler) register(r prometheus.Registerer) { r.MustRegister(p.gauge) }

// reload puts a list into service, as far as it may be read.
func (p *profiler) reload(ctx context.Context, list field.List) error {
	return p.inTurn(ctx, func() error {
		p.list = list
		return p.serve(ctx)
	})
}

// pause returns when no profiling field is read any more. It ends after limit; 0
// means the usual one, a negative one never. After an error the pause stays wanted.
func (p *profiler) pause(ctx context.Context, limit time.Duration, cause string) error {
	if limit == 0 {
		limit = p.usual
	}
	p.log.Info("pausing", zap.String("cause", cause), zap.Duration("for", max(limit, 0)))
	// Before the turn, which a reload may hold for long: the end of the former pause must
	// not end this one.
	p.schedule(limit)
	return p.inTurn(ctx, func() error { return p.set(ctx, true) })
}

// resume ends a pause.
func (p *profiler) resume(ctx context.Context, cause string) error {
	return p.inTurn(ctx, func() error {
		p.log.Info("resuming", zap.String("cause", cause))
		p.schedule(0)
		return p.set(ctx, false)
	})
}

func (p *profiler) inTurn(ctx context.Context, do func() error) error {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p.turn }()
	return do()
}

// set is for the holder of the turn, as serve is.
func (p *profiler) set(ctx context.Context, paused bool) error {
	p.gauge.Set(0)
	if paused {
		p.gauge.Set(1)
	}
	p.paused = paused
	return p.serve(ctx)
}

func (p *profiler) serve(ctx context.Context) error {
	list := p.list
	if p.paused {
		list.Fields = slices.DeleteFunc(slices.Clone(list.Fields), func(f field.Field) bool { return strings.HasPrefix(f.Desc.Name, "DCGM_FI_PROF_") })
	}
	return p.apply(ctx, list)
}

// schedule replaces the time at which the pause ends; one that is not positive
// means never.
func (p *profiler) schedule(limit time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != nil {
		p.end.timer.Stop()
		p.end = nil
	}
	if limit > 0 {
		e := new(ending)
		e.timer = time.AfterFunc(limit, func() { p.forgotten(e, limit) })
		p.end = e
	}
}

// forgotten ends a pause that was not ended by a request, unless its timer was
// replaced.
func (p *profiler) forgotten(e *ending, after time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), reloadTimeout)
	defer cancel()
	err := p.inTurn(ctx, func() error {
		p.mu.Lock()
		mine := p.end == e
		p.mu.Unlock()
		if !mine {
			return nil // replaced while a reload held the turn
		}
		p.log.Warn("the pause was not resumed and ends by itself", zap.Duration("after", after))
		p.schedule(0)
		return p.set(ctx, false)
	})
	if err != nil {
		p.log.Error("profiling is not read again everywhere", zap.Error(err))
	}
}

// run waits for the end of ctx, after which no pause ends any more.
func (p *profiler) run(ctx context.Context) error {
	<-ctx.Done()
	p.schedule(0)
	return nil
}
