package top

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"warpgauge/extensions/live/apiv1"
)

// Node answers questions about one node, as an *api.Client does. What it returns is
// the caller's.
type Node interface {
	Devices(ctx context.Context) (*apiv1.Devices, error)
	Fields(ctx context.Context, devices, patterns []string) (*apiv1.Fields, error)
	Health(ctx context.Context) (*apiv1.Health, error)
}

// Recorder is a Node that also knows what was. Without it there are no plots.
type Recorder interface {
	Samples(ctx context.Context, s apiv1.SamplesQuery) (*apiv1.Samples, error)
	Events(ctx context.Context, since time.Time, limit int) (*apiv1.Events, error)
}

// Target is a node to watch.
type Target struct {
	Name string // until it says its host name: the address
	Node Node
}

const (
	pollTimeout = 5 * time.Second
	longestWait = 10 * time.Second // between two tries of a node that does not answer
	mostEvents  = 20               // of a device, in its details
	eventSpan   = time.Hour
)

// fleet asks each node again and again, one question at a time, so that each has one
// connection.
type fleet struct {
	nodes    []*poller
	interval time.Duration
}

// newFleet returns a fleet that asks each node every interval, once run runs.
func newFleet(targets []Target, interval time.Duration) *fleet {
	f := &fleet{interval: interval}
	for _, t := range targets {
		p := &poller{target: t}
		p.last.Store(&state{name: clean(t.Name)})
		f.nodes = append(f.nodes, p)
	}
	return f
}

// run asks until ctx ends.
func (f *fleet) run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, p := range f.nodes {
		wg.Go(func() { p.run(ctx, f.interval) })
	}
	wg.Wait()
}

// once asks each node once.
func (f *fleet) once(ctx context.Context) {
	var wg sync.WaitGroup
	for _, p := range f.nodes {
		wg.Go(func() { p.poll(ctx) })
	}
	wg.Wait()
}

// states are the newest answers of all nodes.
func (f *fleet) states() []*state {
	out := make([]*state, len(f.nodes))
	for i, p := range f.nodes {
		out[i] = p.last.Load()
	}
	return out
}

// look has the details of a device asked for in addition, and of no other. Nil: of none.
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
	span   time.Duration       // of the plots
	points int                 // of a plot
	plots  map[quantity]string // names of the fields to plot
}

// state is the last answer of a node. It is immutable.
type state struct {
	name     string // host name, or the address before the first answer
	polls    int    // answers, so that each is used once
	answered time.Time
	silent   time.Time // since when it does not answer; zero: it does
	err      string    // why it does not
	devices  *apiv1.Devices
	health   *apiv1.Health
	rows     []row // of devices, in the same order
	details  *details
}

// details has the fields and samples of one device.
type details struct {
	look
	fields  []apiv1.Field
	samples map[quantity]*apiv1.Samples // nil if the node does not have them
	events  []apiv1.Event               // the newest first
}

// poller asks one node. Only its goroutine writes last.
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

// poll asks for the parts that the view shows, and reports whether the node answers.
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

// healthEvery is how many polls there are for each question about health.
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
		rows[i].take(byID[d.ID], d.Interval)
		if d.State != "up" && d.State != "stalled" { // its values are outdated
			rows[i].reset()
		}
	}
	return rows
}

// details asks for all of one device. What fails is left out: the next poll asks again.
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
			break // an exporter without history
		}
		if d.samples == nil {
			d.samples = map[quantity]*apiv1.Samples{}
		}
		d.samples[q] = s
	}
	if e, err := r.Events(ctx, now.Add(-eventSpan), 0); err == nil {
		for i := len(e.Events) - 1; i >= 0 && len(d.events) < mostEvents; i-- {
			if e.Events[i].Device == l.device || e.Events[i].Device == "" {
				d.events = append(d.events, e.Events[i])
			}
		}
	}
	return d
}

// pointsOf returns the largest values of samples in n equal parts of the span that was asked for, NaN where there are none.
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
