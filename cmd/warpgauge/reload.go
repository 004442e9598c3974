package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/extensions/live/api"
	"warpgauge/extensions/live/apiv1"
	"warpgauge/extensions/remote"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
)

// reloadTimeout bounds one reload by signal or file change. What is not done by
// then continues in the background; see engine.Reload.
const reloadTimeout = time.Minute

// errNothingAsked would empty the page.
var errNothingAsked = errors.New("the counters file asks for nothing")

// reloader is the one way by which the field list changes while the exporter
// runs: a signal, a request and a change of the file end in reload, a list of a server in
// deliver. The list in service stays until a better one is complete. While it is a server's,
// the local list is read and checked all the same, and waits until the server's ends.
type reloader struct {
	read  func(context.Context) (*config.Content, error)
	parse func(in *config.Content, log *zap.Logger) (field.List, error)
	apply func(context.Context, field.List) error
	log   *zap.Logger

	turn    chan struct{} // holds one token while a reload is under way
	asked   chan string   // causes that wait for run
	running atomic.Bool

	// Of the holder of the turn.
	content   *config.Content // of the local list that was read last with success
	partial   bool            // not every collector took it
	delivered bool            // a server's list is in service in its place

	local   atomic.Pointer[inService] // the local list
	service atomic.Pointer[inService]
	event   func(apiv1.Event)        // nil: events are not kept
	remote  func() *apiv1.RemoteList // how lists of a server are delivered; nil: no server is asked
	metrics *reloadMetrics
}

// inService is the list in service and how the last reload went.
type inService struct {
	apiv1.List // without its Fields
	fields     field.List
}

// list is what the API says of the list in service.
func (r *reloader) list() apiv1.List {
	out := r.service.Load().List
	if r.remote != nil {
		out.Remote = r.remote()
	}
	return out
}

// reads notes the local list.
func (r *reloader) reads(in *config.Content, list field.List) {
	r.content = in
	r.local.Store(&inService{fields: list, List: apiv1.List{Source: in.Name, Hash: in.Hash()}})
}

// serves notes which list is in service since now.
func (r *reloader) serves(s inService, now time.Time) {
	s.Applied = now.UTC().Truncate(time.Millisecond)
	r.service.Store(&s)
	r.metrics.applied(&s.List)
}

// wellRead forgets the last error, and notes the name of the local list if that is in service.
func (r *reloader) wellRead() {
	s := *r.service.Load()
	if s.LastError, s.FailedAt = "", nil; !r.delivered {
		s = *r.local.Load()
	}
	r.serves(s, r.service.Load().Applied)
}

// servesDelivered is serves for a list of a server, nil: the local one.
func (r *reloader) servesDelivered(l *remote.List) {
	if r.delivered = l != nil; !r.delivered {
		r.serves(*r.local.Load(), time.Now())
		return
	}
	s := inService{fields: l.Fields, List: apiv1.List{Source: l.Origin, Hash: l.Hash, Revision: l.Revision}}
	if !l.Until.IsZero() {
		until := l.Until.UTC().Truncate(time.Millisecond)
		s.Until = &until
	}
	r.serves(s, time.Now())
}

// deliver puts a list of a server into service, nil: the local one. After an error the list
// before is in service, in as many collectors as can have it.
func (r *reloader) deliver(ctx context.Context, l *remote.List) error {
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-r.turn }()
	r.running.Store(true)
	defer r.running.Store(false)

	next, name := r.local.Load().fields, r.local.Load().Source
	if l != nil {
		next, name = l.Fields, l.Origin
	}
	if now := *r.service.Load(); l != nil && r.delivered && now.Hash == l.Hash {
		now.Revision = l.Revision
		r.serves(now, now.Applied)
		return nil
	}
	if err := r.apply(ctx, next); err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			return ctx.Err() // the exporter is stopping
		}
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), reloadTimeout)
		defer cancel()
		again := r.apply(back, r.service.Load().fields)
		r.partial = again != nil
		return errors.Join(err, again) // the caller reports it: the counters CSV is good
	}
	r.partial = false
	r.servesDelivered(l)
	r.report(apiv1.Event{Text: fmt.Sprintf("field list of %s: %s", name, count(len(next.Fields), "field"))})
	return nil
}

func newReloader(content *config.Content, list field.List, log *zap.Logger, now time.Time) *reloader {
	r := &reloader{
		log:     log.Named("reload"),
		turn:    make(chan struct{}, 1),
		asked:   make(chan string, 1),
		metrics: newReloadMetrics(),
	}
	r.metrics.started(now)
	r.reads(content, list)
	r.serves(*r.local.Load(), now)
	return r
}

// ask wants a reload soon; what is asked while another request waits adds
// nothing, since the file has not been read yet.
func (r *reloader) ask(cause string) {
	select {
	case r.asked <- cause:
	default:
	}
}

// run reloads when asked to, and on each of the signals.
func (r *reloader) run(ctx context.Context, hangups <-chan os.Signal) error {
	for {
		cause := "SIGHUP"
		select {
		case <-ctx.Done():
			return nil
		case <-hangups:
		case cause = <-r.asked:
		}
		rctx, cancel := context.WithTimeout(ctx, reloadTimeout)
		_ = r.reload(rctx, cause) // it has logged and counted the error
		cancel()
	}
}

// reload reads the CSV and puts it into service. Reloads happen one after the
// other. An error leaves the list in service as it is, except where it says that
// single collectors could not take the new one.
func (r *reloader) reload(ctx context.Context, cause string) error {
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-r.turn }()
	r.running.Store(true)
	defer r.running.Store(false)

	log := r.log.With(zap.String("cause", cause))
	in, err := r.read(ctx)
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err() // the exporter is stopping, or the request was abandoned
	}
	if err != nil {
		return r.failed(log, "counters not reloaded, the list in service stays", err)
	}
	csv := log // parse adds the name itself
	log = log.With(zap.String("file", in.Name))
	if in.Equal(r.content) && (!r.partial || r.delivered) {
		r.reads(in, r.local.Load().fields)
		r.wellRead()
		r.metrics.unchanged(time.Now())
		log.Info("counters are unchanged")
		return nil
	}
	list, err := r.parse(in, csv)
	if err != nil {
		return r.failed(log, "counters not reloaded, the list in service stays", err)
	}
	if len(list.Fields) == 0 {
		// At start that is accepted; here it is a file that is being written.
		return r.failed(log, "counters not reloaded, the list in service stays", errNothingAsked)
	}
	if r.delivered {
		r.reads(in, list)
		r.wellRead()
		r.metrics.succeeded(time.Now())
		log.Info("counters read; they wait, because a server's list is in service", zap.Int("fields", len(list.Fields)))
		return nil
	}
	err = r.apply(ctx, list)
	r.reads(in, list)
	r.partial = err != nil
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err() // the exporter is stopping, which is no failure
	}
	r.serves(*r.local.Load(), time.Now())
	if err != nil {
		return r.failed(log, "counters reloaded, but not in every collector", err)
	}
	r.metrics.succeeded(time.Now())
	r.report(apiv1.Event{Text: fmt.Sprintf("field list reloaded from %s: %s", in.Name, count(len(list.Fields), "field"))})
	log.Info("counters reloaded", zap.Int("fields", len(list.Fields)))
	return nil
}

// failed counts and logs an error, of a bad CSV each line on its own.
func (r *reloader) failed(log *zap.Logger, message string, err error) error {
	r.metrics.failed()
	now := *r.service.Load()
	at := time.Now().UTC().Truncate(time.Millisecond)
	now.LastError, now.FailedAt = err.Error(), &at
	r.service.Store(&now)
	r.report(apiv1.Event{Text: message + ": " + err.Error(), Bad: true})
	var bad *countersError
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

// report says what came of a reload.
func (r *reloader) report(e apiv1.Event) {
	if e.Kind = api.KindReload; r.event != nil {
		r.event(e)
	}
}

// inProgress says whether a reload is under way.
func (r *reloader) inProgress() bool { return r.running.Load() }

// reloadMetrics are what alerts on a bad CSV need.
type reloadMetrics struct {
	ok    prometheus.Gauge
	when  prometheus.Gauge
	count *prometheus.CounterVec
	list  *prometheus.GaugeVec
	since prometheus.Gauge
}

func newReloadMetrics() *reloadMetrics {
	m := &reloadMetrics{
		ok: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "warpgauge_config_last_reload_successful",
			Help: "1 if the counters CSV was good when it was read last, 0 if it was not or could not be read: an older list is in service.",
		}),
		when: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "warpgauge_config_last_reload_success_timestamp_seconds",
			Help: "When the counters CSV was last read with success, in Unix time.",
		}),
		count: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warpgauge_config_reloads_total",
			Help: "Reloads of the counters CSV by result; the first reading at start does not count.",
		}, []string{"result"}),
		list: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "warpgauge_list_info",
			Help: "1, labelled with the field list in service: where it comes from, its SHA-256 (with a configuration file that of both, one after the other), and what a server calls it.",
		}, []string{"origin", "hash", "revision"}),
		since: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "warpgauge_list_applied_timestamp_seconds",
			Help: "When the field list in service was applied, in Unix time.",
		}),
	}
	for _, result := range []string{"success", "unchanged", "error"} {
		m.count.WithLabelValues(result)
	}
	return m
}

func (m *reloadMetrics) register(r prometheus.Registerer) {
	r.MustRegister(m.ok, m.when, m.count, m.list, m.since)
}

// started notes that the first reading, which is no reload, went well.
func (m *reloadMetrics) started(now time.Time) {
	m.ok.Set(1)
	m.when.Set(float64(now.UnixNano()) / float64(time.Second))
}

// applied notes which list is in service.
func (m *reloadMetrics) applied(l *apiv1.List) {
	m.list.Reset()
	m.list.WithLabelValues(l.Source, l.Hash, l.Revision).Set(1)
	m.since.Set(float64(l.Applied.UnixMilli()) / 1000)
}

func (m *reloadMetrics) succeeded(now time.Time) {
	m.started(now)
	m.count.WithLabelValues("success").Inc()
}

func (m *reloadMetrics) unchanged(now time.Time) {
	m.started(now)
	m.count.WithLabelValues("unchanged").Inc()
}

func (m *reloadMetrics) failed() {
	m.ok.Set(0)
	m.count.WithLabelValues("error").Inc()
}
