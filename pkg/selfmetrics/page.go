// Package selfmetrics keeps warpgauge's own metrics ready as bytes. A Page gathers a Prometheus registry in the
// background and renders it in every format; a scrape copies the finished bytes, so that no collector of own metrics,
// /proc included, can delay it. The package also creates the registry of the process and the table of metrics for the
// documentation. Run is the only goroutine.
//
// A gathering costs milliseconds, more than all other work between scrapes. So it runs a second before the next scrape is
// due, and every ten seconds if none comes. A scrape that comes early shows the own metrics of the previous scrape.
package selfmetrics

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"
)

const (
	defaultInterval = time.Second
	// idle is the number of intervals between gatherings when there are no scrapes, or when gathering is expensive.
	idle = 10
	// restPerWork limits gatherings to 2 % of a core, but at most idle intervals pass between them.
	restPerWork = 49
	maxGap      = time.Minute // between scrapes that are expected
)

// Options configure New. The zero value is usable.
type Options struct {
	Lean       bool                  // only the lean set is on the page, see IsLean
	Interval   time.Duration         // minimum time between gatherings; 0 means 1 s. Without scrapes it is ten times as long
	Registerer prometheus.Registerer // for the metrics of the gathering itself; nil means none
	Logger     *zap.Logger           // may be nil
}

// Page holds the own metrics of the last gathering. Any goroutine may call the methods that return bytes. They never
// block; the bytes are shared and must not be changed. Bytes after a Version call are of that version or a later one.
type Page struct {
	gatherer prometheus.Gatherer
	lean     bool
	interval time.Duration
	log      *zap.Logger
	failing  bool          // the last gathering had errors
	asked    chan struct{} // holds a token if a scrape came since the last gathering

	errors   prometheus.Counter
	duration prometheus.Summary

	current atomic.Pointer[rendering]
}

// rendering is one gathering in every format; immutable once published.
type rendering struct {
	version                     uint64
	text, openMetrics, protobuf []byte
}

// New gathers g once, so that the first page is complete, and returns the Page. Run keeps it up to date.
func New(g prometheus.Gatherer, o Options) *Page {
	p := &Page{
		gatherer: g,
		lean:     o.Lean,
		interval: cmp.Or(max(o.Interval, 0), defaultInterval),
		log:      cmp.Or(o.Logger, zap.NewNop()).Named("selfmetrics"),
		asked:    make(chan struct{}, 1),
		errors:   prometheus.NewCounter(prometheus.CounterOpts{Name: "warpgauge_self_gather_errors_total", Help: "Gatherings of warpgauge's own metrics in which a collector or a family failed. The others are on the page."}),
		duration: prometheus.NewSummary(prometheus.SummaryOpts{Name: "warpgauge_self_gather_duration_seconds", Help: "Time to gather and render warpgauge's own metrics, which is done in the background."}),
	}
	if o.Registerer != nil {
		o.Registerer.MustRegister(p.errors, p.duration)
	}
	p.current.Store(new(rendering))
	p.refresh()
	return p
}

// Run gathers until ctx ends, and returns nil. Call it once.
func (p *Page) Run(ctx context.Context) error {
	gathered, rest, scraped := time.Now(), p.interval, time.Time{}
	next := gathered.Add(idle * p.interval)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.asked:
			gap := time.Since(scraped)
			if gap > maxGap {
				gap = idle * p.interval
			}
			scraped = time.Now()
			next = gathered.Add(max(rest, scraped.Sub(gathered)+gap-p.interval))
		case <-time.After(time.Until(next)):
			rest = min(max(p.interval, restPerWork*p.refresh()), idle*p.interval)
			gathered = time.Now()
			next = gathered.Add(idle * p.interval)
		}
	}
}

// refresh gathers, renders and publishes. It returns its duration.
func (p *Page) refresh() time.Duration {
	start := time.Now()
	families, err := p.gatherer.Gather() // Gather still returns the valid families
	if p.lean {
		families = slices.DeleteFunc(families, func(f *dto.MetricFamily) bool { return !IsLean(f.GetName()) })
	}
	last := p.current.Load()
	next, renderErr := render(families, last)
	p.report(errors.Join(err, renderErr))
	next.version = last.version + 1
	p.current.Store(next)
	took := time.Since(start)
	p.duration.Observe(took.Seconds())
	return took
}

// report counts an error, and logs when errors begin and end.
func (p *Page) report(err error) {
	if err != nil {
		p.errors.Inc()
	}
	switch failing := err != nil; {
	case failing && !p.failing:
		p.log.Warn("cannot gather some of the exporter's own metrics", zap.Error(err))
	case !failing && p.failing:
		p.log.Info("gathering all of the exporter's own metrics again")
	}
	p.failing = err != nil
}

// Version grows with every gathering and is at least 1. Each scrape calls it, so Run knows about scrapes.
func (p *Page) Version() uint64 {
	select {
	case p.asked <- struct{}{}:
	default: // a token is already there
	}
	return p.current.Load().version
}

// Text returns the families in the text format 0.0.4.
func (p *Page) Text() []byte { return p.current.Load().text }

// OpenMetrics returns the families as OpenMetrics 1.0, without the final # EOF.
func (p *Page) OpenMetrics() []byte { return p.current.Load().openMetrics }

// Protobuf returns the families as length-delimited MetricFamily messages.
func (p *Page) Protobuf() []byte { return p.current.Load().protobuf }
