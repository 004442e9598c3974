// Package selfmetrics keeps what warpgauge tells of itself ready as bytes. A
// Page gathers a Prometheus registry in the background and renders it in every
// format; a scrape copies the bytes that are there, so that no collector of own
// metrics, /proc among them, can delay it. The package also makes the registry
// that the process starts with, and the table of metrics for the documentation.
package selfmetrics

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

const (
	defaultInterval = time.Second
	// restPerWork keeps the gatherings at 2 % of a core: after those that took a
	// second there is a rest of 49.
	restPerWork = 49
	// steady is how many gatherings in a row must be slow before the rest grows. A
	// single one has waited for a core, most likely, and cost no more than the others;
	// the page would be old just when the machine is in trouble.
	steady = 3
	// maxInterval bounds that rest. One that waits, rather than works, for
	// longer than this says little about what it costs.
	maxInterval = 30 * time.Second
)

// Options of New. The zero value is usable.
type Options struct {
	Interval   time.Duration         // between gatherings; 0 means 1 s. Longer by itself while they stay expensive, up to 30 s
	Registerer prometheus.Registerer // for the metrics of the gathering itself; nil means none
	Logger     *zap.Logger           // nil logs nothing
}

// Page holds the own metrics as of the last gathering. The methods that return
// bytes may be called from any goroutine and never block; the bytes are shared
// and must not be changed. Bytes asked for after a Version are of that version
// or a later one.
type Page struct {
	gatherer prometheus.Gatherer
	interval time.Duration
	log      *zap.Logger
	failing  bool // the last gathering had errors

	recent [steady]time.Duration // how long the last gatherings took, as a ring
	next   int                   // of recent

	errors   prometheus.Counter
	duration prometheus.Summary

	current atomic.Pointer[rendering]
}

// New gathers g once, so that the first page is complete, and returns the Page.
// Run keeps it up to date.
func New(g prometheus.Gatherer, o Options) *Page {
	p := &Page{
		gatherer: g,
		interval: cmp.Or(max(o.Interval, 0), defaultInterval),
		log:      o.Logger,
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "warpgauge_self_gather_errors_total",
			Help: "Gatherings of warpgauge's own metrics in which a collector or a family failed. The others are on the page.",
		}),
		duration: prometheus.NewSummary(prometheus.SummaryOpts{
			Name: "warpgauge_self_gather_duration_seconds",
			Help: "Time to gather and render warpgauge's own metrics, which is done in the background.",
		}),
	}
	if p.log == nil {
		p.log = zap.NewNop()
	}
	p.log = p.log.Named("selfmetrics")
	if o.Registerer != nil {
		o.Registerer.MustRegister(p.errors, p.duration)
	}
	p.current.Store(new(rendering))
	p.refresh()
	return p
}

// Run gathers until ctx ends, and returns nil. Call it once.
func (p *Page) Run(ctx context.Context) error {
	timer := time.NewTimer(p.interval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			timer.Reset(p.rest(p.refresh()))
		}
	}
}

// rest returns how long to wait after a gathering that took so long.
func (p *Page) rest(took time.Duration) time.Duration {
	p.recent[p.next] = took
	p.next = (p.next + 1) % steady
	return max(p.interval, min(slices.Min(p.recent[:]), maxInterval/restPerWork)*restPerWork)
}

// refresh gathers, renders and publishes. It returns how long that took.
func (p *Page) refresh() time.Duration {
	start := time.Now()
	families, err := p.gatherer.Gather() // with an error, too, come the families that are good
	last := p.current.Load()
	next, renderErr := render(families, last)
	p.tell(errors.Join(err, renderErr))
	if !next.equal(last) {
		next.version = last.version + 1
		p.current.Store(next)
	}
	took := time.Since(start)
	p.duration.Observe(took.Seconds())
	return took
}

// tell counts an error, and logs when errors begin and end.
func (p *Page) tell(err error) {
	if err != nil {
		p.errors.Inc()
	}
	switch failing := err != nil; {
	case failing && !p.failing:
		p.log.Warn("some of the own metrics are missing", zap.Error(err))
	case !failing && p.failing:
		p.log.Info("the own metrics are complete again")
	}
	p.failing = err != nil
}

// Version grows with every change of the bytes; it is at least 1.
func (p *Page) Version() uint64 { return p.current.Load().version }

// Text returns the families in the text format 0.0.4.
func (p *Page) Text() []byte { return p.current.Load().text }

// OpenMetrics returns the families as OpenMetrics 1.0, without the final # EOF.
func (p *Page) OpenMetrics() []byte { return p.current.Load().openMetrics }

// Protobuf returns the families as length-delimited MetricFamily messages.
func (p *Page) Protobuf() []byte { return p.current.Load().protobuf }

// rendering is one gathering in every format; immutable once published.
type rendering struct {
	version                     uint64
	text, openMetrics, protobuf []byte
}

func (r *rendering) equal(o *rendering) bool {
	return o.version != 0 && bytes.Equal(r.text, o.text) && bytes.Equal(r.openMetrics, o.openMetrics) && bytes.Equal(r.protobuf, o.protobuf)
}
