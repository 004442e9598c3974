// Package lists holds the Desk, which decides which fields are read. Files, ConfigMaps and signals propose the local
// list, a server proposes a list in its place, and users pause profiling fields and release collectors. The Desk
// applies one change after the other, answers each, and keeps one Status of all of them, which the API, the metrics,
// the pod's annotations and OpAMP show.
//
// Desk.Run starts goroutines and ends them. All other methods may be called by any goroutine.
package lists

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
)

// changeTimeout bounds a change that no client waits for. After it the change continues in the background.
const changeTimeout = time.Minute

// errEmpty refuses a list that would empty the page.
var errEmpty = errors.New("the counters file lists no fields")

// errWaiting is the result of a reload whose list is good but not in service.
var errWaiting = waitingError{errors.New("the counters file is good and waits, because a server's list is in service")}

type waitingError struct{ error }

// Waiting makes the server answer 202.
func (waitingError) Waiting() {}

// Local supplies this node's own list, which is in service while no server's list is. *Files implements it.
type Local interface {
	Read(ctx context.Context) (*config.Content, error)
	Parse(in *config.Content) *Parsed
	ParseDelivered(content []byte, origin string, isYAML bool) *Parsed // the list of a server
	// Accept logs the warnings of a parsed list, or returns its errors.
	Accept(p *Parsed, log *zap.Logger) (field.List, error)
}

// Engine applies lists and releases to the collectors. exporter.Engine implements it.
type Engine interface {
	// Reload gives all collectors a list and returns when it is in service. After an error some collectors may not have it.
	Reload(ctx context.Context, list field.List) error
	Serves() bool // a collector reads devices with the last Reload's list
	// Release returns when nothing of a collector is held; an empty name means all collectors.
	Release(ctx context.Context, collector string) error
	Resume(collector string) // does not wait
	Names() []string         // of the collectors
}

// Events publishes an event for each list; bad ones need action.
type Events interface {
	Publish(text string, bad bool)
}

// Desk decides which list is in service. A change holds the queue from its first look at the current list until its answer.
type Desk struct {
	o Options

	queue    chan struct{} // has one value while a caller holds a Turn
	asked    chan string   // causes of reloads that wait for Run
	changing atomic.Bool   // a list is being put into service

	// For the holder of the Turn.
	content *config.Content // of the local list
	partial bool            // not every collector has the list in service

	mu     sync.Mutex
	status Status

	endsMu sync.Mutex
	ends   map[string]time.Time // when releases end by themselves, by collector, and a pause (profilingKey)
}

// Options of New.
type Options struct {
	Local  Local
	Engine Engine
	Events Events        // nil: none
	Usual  time.Duration // default duration of pauses and releases; 0: until a command ends them
	Logger *zap.Logger

	Tick func(period time.Duration) <-chan time.Time // view.Tick
}

// New returns a Desk. first is the local list, which the engine begins with.
func New(first *Parsed, o Options) *Desk {
	d := &Desk{
		o: o, queue: make(chan struct{}, 1), asked: make(chan string, 1), ends: map[string]time.Time{},
		content: first.Content,
		status:  Status{Applied: stamp(time.Now()), good: true, succeeded: time.Now()},
	}
	d.setLocal(first.Content, first.Fields)
	d.status.InService = d.status.Local
	return d
}

// Restore puts the saved list of a server into service. It must be called before the engine runs.
func (d *Desk) Restore(l *List) {
	// The engine has the list when Reload returns, although nothing samples yet that could be waited for.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = d.o.Engine.Reload(ctx, l.Fields)
	d.serve(*l, true)
}

// Turn is the right to change the list in service. Only one caller holds it at a time.
type Turn struct{ d *Desk }

// Begin waits for the Turn. The caller must end it.
func (d *Desk) Begin(ctx context.Context) (*Turn, error) {
	select {
	case d.queue <- struct{}{}:
		return &Turn{d}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// End gives the Turn to the next one in the queue.
func (t *Turn) End() { <-t.d.queue }

// Serve puts a server's list into service, or the local list if l is nil. After an error it restores the previous list
// in as many collectors as possible.
func (t *Turn) Serve(ctx context.Context, l *List) error {
	d := t.d
	d.changing.Store(true)
	defer d.changing.Store(false)
	now := d.Status()
	if l != nil && now.delivered && now.InService.Hash == l.Hash {
		d.update(func(s *Status) { s.InService.Revision = l.Revision })
		return nil
	}
	next := now.Local
	if l != nil {
		next = *l
	}
	if err := d.apply(ctx, next.Fields); err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			return ctx.Err() // the exporter is stopping
		}
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), changeTimeout)
		defer cancel()
		again := d.apply(back, now.wanted().Fields)
		d.partial = again != nil
		return errors.Join(err, again) // the counters CSV is good; the caller reports this error
	}
	d.partial = false
	d.serve(next, l != nil)
	d.publish(fmt.Sprintf("field list of %s: %s", next.Origin, config.Counted(len(next.Fields.Fields), "field")), false)
	return nil
}

// ParseDelivered parses the list of a server. The caller holds the Turn, or the Desk does not run yet.
func (d *Desk) ParseDelivered(content []byte, origin string, isYAML bool) *Parsed {
	return d.o.Local.ParseDelivered(content, origin, isYAML)
}

// apply has the engine read a list, without its profiling fields during a pause. The caller holds the Turn.
func (d *Desk) apply(ctx context.Context, list field.List) error {
	if d.Status().Paused {
		list.Fields = slices.DeleteFunc(slices.Clone(list.Fields), func(f field.Field) bool { return f.Desc.ID.Profiling() })
	}
	return d.o.Engine.Reload(ctx, list)
}

// Reload reads the local list and puts it into service. While a server's list is in service, it only reads and checks
// the local list. After an error the current list stays in service, unless a collector applied the new one.
func (d *Desk) Reload(ctx context.Context, cause string) error {
	t, err := d.Begin(ctx)
	if err != nil {
		return err
	}
	defer t.End()
	d.changing.Store(true)
	defer d.changing.Store(false)

	log := d.o.Logger.Named("reload").With(zap.String("cause", cause))
	in, err := d.o.Local.Read(ctx)
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err() // the exporter is stopping, or the request was abandoned
	}
	if err != nil {
		return d.fail(log, cause, "counters not reloaded, the list in service stays", err)
	}
	csv := log // Accept adds the name itself
	log = log.With(zap.String("file", in.Name))
	delivered := d.Status().delivered
	if in.Equal(d.content) && (!d.partial || delivered) {
		d.content = in
		d.reloaded(in, d.Status().Local.Fields, cause, Unchanged)
		log.Info("counters are unchanged")
		if delivered {
			return errWaiting
		}
		return nil
	}
	list, err := d.o.Local.Accept(d.o.Local.Parse(in), csv)
	if err == nil && len(list.Fields) == 0 {
		err = errEmpty // accepted at start; here the file is probably being written
	}
	if err != nil {
		return d.fail(log, cause, "counters not reloaded, the list in service stays", err)
	}
	if delivered {
		d.content = in
		d.reloaded(in, list, cause, Waiting)
		log.Info("counters read; they wait, because a server's list is in service", zap.Int("fields", len(list.Fields)))
		return errWaiting
	}
	err = d.apply(ctx, list)
	d.content, d.partial = in, err != nil
	d.setLocal(in, list)
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err() // the exporter is stopping, which is not a failure
	}
	if err != nil && !d.o.Engine.Serves() {
		return d.fail(log, cause, "counters not reloaded, the list in service stays", err)
	}
	d.serve(d.Status().Local, false)
	if err != nil {
		return d.fail(log, cause, "counters reloaded, but not in every collector", err)
	}
	d.reloaded(in, list, cause, Applied)
	d.publish(fmt.Sprintf("field list reloaded from %s: %s", in.Name, config.Counted(len(list.Fields), "field")), false)
	log.Info("counters reloaded", zap.Int("fields", len(list.Fields)))
	return nil
}

// fail counts, records and logs why the local list is not in service. Each bad line of a CSV is logged on its own.
func (d *Desk) fail(log *zap.Logger, cause, message string, err error) error {
	now := stamp(time.Now())
	d.update(func(s *Status) {
		s.LastError, s.FailedAt, s.good = err.Error(), now, false
		s.errors++
		s.propose(Proposal{cause, kindReload, now, Failed, err.Error()})
	})
	d.publish(message+": "+err.Error(), true)
	var bad *ProblemsError
	if !errors.As(err, &bad) {
		log.Error(message, zap.Error(err))
		return err
	}
	for _, p := range bad.problems {
		log.Error(p.Message, place(p)...)
	}
	log.Error(message, zap.Int("errors", len(bad.problems)))
	return err
}

func (d *Desk) publish(text string, bad bool) {
	if d.o.Events != nil {
		d.o.Events.Publish(text, bad)
	}
}

// Changing reports whether a list is being put into service.
func (d *Desk) Changing() bool { return d.changing.Load() }

// RequestReload makes Run reload soon. Requests that wait at the same time are one, because the file has not been read yet.
func (d *Desk) RequestReload(cause string) {
	select {
	case d.asked <- cause:
	default:
	}
}

// Signals are the process's signals that reload lists and release collectors.
type Signals struct {
	Reload, Release, Resume <-chan os.Signal
}

// endsEvery is how often Run looks for pauses and releases whose time is over.
const endsEvery = time.Second

// Run handles requests and signals to reload, release and resume, and ends pauses and releases, until ctx ends.
func (d *Desk) Run(ctx context.Context, s Signals) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { d.runReleases(ctx, s) }) // a long release or reload does not delay the other
	for {
		cause := "SIGHUP"
		select {
		case <-ctx.Done():
			return nil
		case <-s.Reload:
		case cause = <-d.asked:
		case <-d.o.Tick(endsEvery):
			d.endPause(ctx)
			// A collector can apply a list after its Reload failed.
			if s := d.Status(); s.wanted().Hash != s.InService.Hash && d.o.Engine.Serves() {
				d.serve(s.Local, false)
				d.update(func(s *Status) { s.good, s.succeeded = true, s.Applied })
				d.answer("late answer of a collector", kindReload, "", nil)
			}
			continue
		}
		rctx, cancel := context.WithTimeout(ctx, changeTimeout)
		_ = d.Reload(rctx, cause) // it has logged and counted the error
		cancel()
	}
}
