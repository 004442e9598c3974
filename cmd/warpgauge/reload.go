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

	"warpgauge/pkg/api"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
)

// reloadTimeout bounds one reload by signal or file change. What is not done by
// then continues in the background; see engine.Reload.
const reloadTimeout = time.Minute

// errNothingAsked would empty the page.
var errNothingAsked = errors.New("the counters file asks for nothing")

// reloader is the one way by which the field list changes while the exporter
// runs: a signal, a request and a change of the file all end in reload. The list
// in service stays until a better one is complete.
type reloader struct {
	read  func(context.Context) (*config.Content, error)
	parse func(in *config.Content, log *zap.Logger) (field.List, error)
	apply func(context.Context, field.List) error
	log   *zap.Logger

	turn    chan struct{} // holds one token while a reload is under way
	asked   chan string   // causes that wait for run
	running atomic.Bool

	// Of the holder of the turn.
	content *config.Content // of the list that was applied last
	partial bool            // not every collector took it

	service atomic.Pointer[inService]
	event   func(api.Event) // nil: events are not kept
	metrics *reloadMetrics
}

// inService is the list in service and how the last reload went.
type inService struct {
	api.List // without its Fields
	fields   field.List
}

// serves notes which list is in service.
func (r *reloader) serves(in *config.Content, list field.List, now time.Time) {
	r.service.Store(&inService{fields: list, List: api.List{
		Source: in.Name, Hash: in.Hash(), Applied: now.UTC().Truncate(time.Millisecond),
	}})
	r.metrics.applied(in)
}

func newReloader(content *config.Content, list field.List, log *zap.Logger, now time.Time) *reloader {
	r := &reloader{
		log:     log.Named("reload"),
		turn:    make(chan struct{}, 1),
		asked:   make(chan string, 1),
		content: content,
		metrics: newReloadMetrics(),
	}
	r.metrics.started(now)
	r.serves(content, list, now)
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
	if in.Equal(r.content) && !r.partial {
		r.serves(in, r.service.Load().fields, r.service.Load().Applied)
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
	err = r.apply(ctx, list)
	r.content, r.partial = in, err != nil
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err() // the exporter is stopping, which is no failure
	}
	r.serves(in, list, time.Now())
	if err != nil {
		return r.failed(log, "counters reloaded, but not in every collector", err)
	}
	r.metrics.succeeded(time.Now())
	r.report(api.Event{Text: fmt.Sprintf("field list reloaded from %s: %s", in.Name, count(len(list.Fields), "field"))})
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
	r.report(api.Event{Text: message + ": " + err.Error(), Bad: true})
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
func (r *reloader) report(e api.Event) {
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
			Help: "1, labelled with the field list in service: where it comes from, and its SHA-256; with a configuration file that of both, one after the other.",
		}, []string{"origin", "hash"}),
	}
	for _, result := range []string{"success", "unchanged", "error"} {
		m.count.WithLabelValues(result)
	}
	return m
}

func (m *reloadMetrics) register(r prometheus.Registerer) {
	r.MustRegister(m.ok, m.when, m.count, m.list)
}

// started notes that the first reading, which is no reload, went well.
func (m *reloadMetrics) started(now time.Time) {
	m.ok.Set(1)
	m.when.Set(float64(now.UnixNano()) / float64(time.Second))
}

// applied notes which list is in service.
func (m *reloadMetrics) applied(in *config.Content) {
	m.list.Reset()
	m.list.WithLabelValues(in.Name, in.Hash()).Set(1)
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
