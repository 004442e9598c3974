package top

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"warpgauge/extensions/live/apiv1"
)

// Node queries one node. *apiv1.Client implements it. The caller owns the results.
type Node interface {
	Devices(ctx context.Context) (*apiv1.Devices, error)
	Fields(ctx context.Context, devices, patterns []string) (*apiv1.Fields, error)
	Health(ctx context.Context) (*apiv1.Health, error)
}

// Recorder is a Node that also has a history. Without it there are no plots.
type Recorder interface {
	Samples(ctx context.Context, s apiv1.SamplesQuery) (*apiv1.Samples, error)
	Events(ctx context.Context, since time.Time, limit int) (*apiv1.Events, error)
}

// Target is a node to watch.
type Target struct {
	Name string // the address, until the host name is known
	Node Node
}

const (
	pollTimeout = 5 * time.Second
	longestWait = 10 * time.Second // maximum pause between attempts to reach a silent node
	maxEvents   = 20               // events in a device's details
	eventSpan   = time.Hour
)

// fleet polls each node, one request at a time, so that each needs one connection.
type fleet struct {
	nodes    []*poller
	interval time.Duration
}

// newFleet returns a fleet that polls each node every interval while run runs.
func newFleet(targets []Target, interval time.Duration) *fleet {
	f := &fleet{interval: interval}
	for _, t := range targets {
		p := &poller{target: t}
		p.last.Store(&state{name: clean(t.Name)})
		f.nodes = append(f.nodes, p)
	}
	return f
}

// run polls until ctx ends.
func (f *fleet) run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, p := range f.nodes {
		wg.Go(func() { p.run(ctx, f.interval) })
	}
	wg.Wait()
}

// once polls each node once.
func (f *fleet) once(ctx context.Context) {
	var wg sync.WaitGroup
	for _, p := range f.nodes {
		wg.Go(func() { p.poll(ctx) })
	}
	wg.Wait()
}

// states returns the latest answers of all nodes.
func (f *fleet) states() []*state {
	out := make([]*state, len(f.nodes))
	for i, p := range f.nodes {
		out[i] = p.last.Load()
	}
	return out
}

// look selects the device whose details are polled; nil selects none.
func (f *fleet) look(at *look) {
	for i, p := range f.nodes {
		if at != nil && at.node == i {
			p.look.Store(at)
		} else {
			p.look.Store(nil)
		}
	}
}

// look selects the contents of the detail view.
type look struct {
	key
	span   time.Duration       // time span of the plots
	points int                 // points per plot
	plots  map[quantity]string // names of the plotted fields
}

// state is a node's last answer. It is immutable.
type state struct {
	name     string // host name, or the address before the first answer
	polls    int    // number of answers, so that each is used once
	answered time.Time
	silent   time.Time // since when the node does not answer, or zero
	err      string    // why it does not answer
	devices  *apiv1.Devices
	health   *apiv1.Health // since the first answer, as devices
	rows     []row         // one per device, in the same order
	details  *details
}

// details holds the fields and samples of one device.
type details struct {
	look
	fields  []apiv1.Field
	samples map[quantity]*apiv1.Samples // nil if the node has no history
	events  []apiv1.Event               // newest first
}

// poller polls one node. Only its goroutine writes last.
type poller struct {
	target Target
	last   atomic.Pointer[state]
	look   atomic.Pointer[look]
}

func (p *poller) run(ctx context.Context, interval time.Duration) {
	wait := interval
	for {
		began := time.Now()
		if p.poll(ctx) {
			wait = interval
		} else {
			wait = min(2*wait, max(longestWait, interval))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(wait-time.Since(began), interval/10)):
		}
	}
}

// poll requests the parts that the view shows, and reports whether the node answered.
func (p *poller) poll(ctx context.Context) bool {
	limited, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	former := p.last.Load()
	s := &state{name: former.name, polls: former.polls, answered: former.answered}
	err := p.ask(limited, s, former)
	if ctx.Err() != nil {
		return true
	}
	if err != nil {
		failed := *former
		failed.err = clean(err.Error())
		if failed.silent.IsZero() {
			failed.silent = time.Now()
		}
		p.last.Store(&failed)
		return false
	}
	p.last.Store(s)
	return true
}

// healthEvery is the number of polls per request for health.
const healthEvery = 5

func (p *poller) ask(ctx context.Context, s, former *state) error {
	n := p.target.Node
	devices, err := n.Devices(ctx)
	if err != nil {
		return err
	}
	fields, err := n.Fields(ctx, nil, names())
	if err != nil {
		return err
	}
	s.health = former.health
	if s.polls%healthEvery == 0 || former.err != "" {
		if s.health, err = n.Health(ctx); err != nil {
			return err
		}
	}
	s.devices, s.answered, s.polls = devices, time.Now(), s.polls+1
	if devices.Hostname != "" {
		s.name = devices.Hostname
	}
	s.rows = rowsOf(devices, fields)
	if l := p.look.Load(); l != nil {
		s.details = p.details(ctx, l)
	}
	return nil
}

func rowsOf(devices *apiv1.Devices, fields *apiv1.Fields) []row {
	byID := make(map[string][]apiv1.Field, len(fields.Devices))
	for i := range fields.Devices {
		byID[fields.Devices[i].ID] = fields.Devices[i].Fields
	}
	rows := make([]row, len(devices.Devices))
	for i := range rows {
		d := &devices.Devices[i]
		rows[i].Device = d
		rows[i].setFields(byID[d.ID], d.Interval)
		if d.State != "up" && d.State != "stalled" { // its values are outdated
			rows[i].reset()
		}
	}
	return rows
}

// details requests everything about one device. It omits failed parts; the next poll tries again.
func (p *poller) details(ctx context.Context, l *look) *details {
	d := &details{look: *l}
	if f, err := p.target.Node.Fields(ctx, []string{l.device}, nil); err == nil {
		for i := range f.Devices {
			d.fields = append(d.fields, f.Devices[i].Fields...)
		}
	}
	r, ok := p.target.Node.(Recorder)
	if !ok {
		return d
	}
	now := time.Now()
	for q, name := range l.plots {
		s, err := r.Samples(ctx, apiv1.SamplesQuery{Device: l.device, Field: name, Since: now.Add(-l.span), Points: l.points})
		if err != nil {
			d.samples = nil
			break // an exporter without a history
		}
		if d.samples == nil {
			d.samples = map[quantity]*apiv1.Samples{}
		}
		d.samples[q] = s
	}
	if e, err := r.Events(ctx, now.Add(-eventSpan), 0); err == nil {
		for i := len(e.Events) - 1; i >= 0 && len(d.events) < maxEvents; i-- {
			if e.Events[i].Device == l.device || e.Events[i].Device == "" {
				d.events = append(d.events, e.Events[i])
			}
		}
	}
	return d
}

// pointsOf returns the maximum of the samples in each of n equal parts of the span, or NaN for a part without samples.
func pointsOf(s *apiv1.Samples, factor float64, span time.Duration, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = math.NaN()
	}
	if s == nil || len(s.Series) == 0 {
		return out
	}
	at := func(ms int64) int { return int((ms - s.Until + span.Milliseconds()) * int64(n) / span.Milliseconds()) }
	for i, ms := range s.Series[0].Times {
		first, highest := at(ms), s.Series[0].Max
		for k := first; i < len(highest) && highest[i] != nil && k < n && (k == first || k < at(ms+s.Step)); k++ {
			if k >= 0 && !(out[k] > *highest[i]*factor) {
				out[k] = *highest[i] * factor
			}
		}
	}
	return out
}
