package exporter

import (
	"context"
	"slices"
	"sync"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/kube"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// Commands that read the node's devices themselves build a Pipeline, run it with Sample, and print the result.

// statusPoll is how often such a command checks whether all devices have reported.
const statusPoll = 5 * time.Millisecond

// Sample runs collectors and owner clients until f returns. It calls f when all have reported or the timeout has
// passed. At the end it waits for library calls as long as the exporter does.
func (p *Pipeline) Sample(ctx context.Context, timeout time.Duration, f func(ctx context.Context) error) error {
	rctx, cancel := context.WithCancel(ctx)
	var sampler sync.WaitGroup
	sampler.Go(func() { _ = p.Engine.Run(rctx) }) // abandoned calls end with the process
	defer sampler.Wait()
	defer cancel()
	defer p.Owners.start(ctx)()
	wctx, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	p.Engine.AwaitOpened(wctx)
	if p.Engine.failover != nil {
		p.Engine.failover.DecideNow()
	}
	p.Owners.wait(wctx)
	return f(wctx)
}

// ValuesPatience is how long commands wait for values that need several samples, by default.
const ValuesPatience = 3 * time.Second

// UsedBy describes the users of the device with an ID.
func (p *Pipeline) UsedBy(id string) []string {
	if p.Owners == nil {
		return nil
	}
	for _, c := range p.Engine.Status() {
		for i := range c.Devices {
			if d := &c.Devices[i].Device; d.ID == id {
				return p.Owners.keeper.Describe(d)
			}
		}
	}
	return nil
}

// enoughSamples is the number of samples after which a value from two samples is there, if the device has it.
// The second may come before another part is ready.
const enoughSamples = 3

// AwaitValues samples each device at least the given number of times, and longer while a value from several samples is
// missing. With long intervals the value is not due yet, as the Report shows. Sample's function calls it.
func (p *Pipeline) AwaitValues(ctx context.Context, samples int, patience time.Duration) session.Report {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for n := 1; ; n++ {
		r := session.NewReport(p.Board.Load(), p.Engine.Status(), p.list, session.ReportOptions{StaleAfter: p.Config.EffectiveStaleAfter(), Now: time.Now()})
		if ctx.Err() != nil || n >= samples && (n >= enoughSamples || !r.Waits()) {
			return r
		}
		await(ctx, p.Engine.sampledAgain())
	}
}

// AwaitOpened returns when every collector has been opened and its devices have been sampled, or reports why not.
func (e *Engine) AwaitOpened(ctx context.Context) {
	await(ctx, func() bool { return session.Opened(e.Status()) })
}

// await polls until done or the end of ctx.
func await(ctx context.Context, done func() bool) {
	for !done() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(statusPoll):
		}
	}
}

// sampledAgain returns a function that reports whether each source with a device that is up has another row.
// A device with only slow fields may have nothing new in that row.
func (e *Engine) sampledAgain() func() bool {
	heads := map[*view.Source]uint64{}
	for _, s := range e.board.Load().Sources {
		heads[s] = s.Ring.Head()
	}
	return func() bool {
		up := map[string]bool{}
		for _, c := range e.Status() {
			for _, d := range c.Devices {
				up[d.Device.ID] = up[d.Device.ID] || d.State == session.Up
			}
		}
		return !slices.ContainsFunc(e.board.Load().Sources, func(s *view.Source) bool {
			return s.Ring.Head() <= heads[s] && slices.ContainsFunc(s.Devices, func(d collector.Device) bool { return up[d.ID] })
		})
	}
}

// start runs the stages until stop.
func (o *Owners) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, s := range o.stages() {
		running.Go(func() { _ = s.Run(ctx) }) // a client's error is logged
	}
	return func() {
		cancel()
		done := make(chan struct{})
		go func() { running.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(ShortGrace): // a client that hangs ends with the process
		}
	}
}

// wait waits until each mapping has arrived or failed, and joins those that arrived.
func (o *Owners) wait(ctx context.Context) {
	if o != nil {
		await(ctx, o.complete)
		o.keeper.Refresh(time.Now())
	}
}

// complete reports whether every mapping was tried and every client is complete.
func (o *Owners) complete() bool {
	return !slices.ContainsFunc(o.Health, func(h *kube.Health) bool { return !h.State().Tried }) &&
		!slices.ContainsFunc(o.clients, func(c client) bool { return c.complete != nil && !c.complete() })
}
