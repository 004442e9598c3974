// Package health judges each device by a table of rules (rules.go) and keeps a verdict on it.
package health

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/extensions/health/pci"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/rules"
	"warpgauge/pkg/session"
	"warpgauge/pkg/verdict"
	"warpgauge/pkg/view"
)

const (
	interval     = time.Second // in which devices are judged
	refreshEvery = time.Minute // in which it is published that a condition was seen again
	maxDevices   = 4096
	// maxObservations is how many wait for the next judgement; of more, the newest are dropped.
	maxObservations = 1024
)

// Observation is a report about a device that comes from no reading: an XID in the kernel
// log, a board that no driver serves.
type Observation struct {
	// Reason is the name of a rule, without the code: "xid", "missing", "sxid_fatal"; or
	// ReasonReset. What no rule has is left out.
	Reason   string
	Code     int    // of an XID; 0: none
	Device   string // collector.Device.ID; "": found by PCIBusID
	PCIBusID string // in any usual form
	Time     time.Time
	Source   string
	Text     string
	Over     bool // it no longer holds; for rules that end by being told so
}

// Reasons of Observations: a device was reset; no driver or collector serves a board.
const (
	ReasonReset   = "reset"
	ReasonMissing = "missing"
)

// Options of New. Rows and Status are needed.
type Options struct {
	Rows    *rows.Reader                     // whose rows are judged
	Status  func() []session.CollectorStatus // in order of priority
	Rules   Rules
	Derived Derived        // readings of early signs. nil: they are not judged
	Board   *verdict.Board // where verdicts are published; nil: a board of the Watch's own
	// Events has the XIDs that are judged, and gets each verdict with another state or reason.
	// nil: there are none.
	Events *events.Bus
	// Directory is where conditions are kept; "": in memory only.
	Directory string
	BootID    string // of the kernel; "": not known
	// Scope says which devices are selected: with another one, devices that were seen before
	// are not missing.
	Scope  string
	Logger *zap.Logger
}

// Watch judges devices. Run does the work; Board, Observe and those of prometheus.Collector
// can be called by any goroutine.
type Watch struct {
	o        Options
	log      *zap.Logger
	board    *verdict.Board
	xids     *events.Subscription // nil: none
	observed chan Observation
	dropped  atomic.Uint64 // Observations

	rowsMu      sync.Mutex // guards what follows; its holder only computes
	rebound     bool       // there is another View since the last judgement
	sources     []*sourceRules
	suppliers   map[string]string // collectors by the device that they supply; replaced, never changed
	evaluations evaluations

	// Of the goroutine of Run.
	lost      uint64            // XIDs and Observations that were dropped, as last logged
	regrouped bool              // there are other devices since the last judgement
	supplies  map[string]string // suppliers, at the last reading
	devices   []*tracked
	byID      map[string]*tracked
	byPCI     map[pci.Address]*tracked // boards
	order     map[string]int           // of rules, by name
	round     uint64
	refresh   time.Time // when it was last published that conditions were seen again
	unsaved   bool
}

// New returns a Watch that does not run yet. It panics if a rule is there twice.
func New(o Options) *Watch {
	w := &Watch{
		o: o, board: cmp.Or(o.Board, new(verdict.Board)), log: o.Logger.Named("health"), observed: make(chan Observation, maxObservations),
		evaluations: evaluations{}, byID: map[string]*tracked{}, byPCI: map[pci.Address]*tracked{}, order: map[string]int{},
	}
	for i := range o.Rules {
		if _, twice := w.order[o.Rules[i].Name]; twice {
			panic("health: two rules " + o.Rules[i].Name)
		}
		w.order[o.Rules[i].Name] = i
	}
	w.o.Rows.Follow(w)
	if o.Events != nil {
		w.xids = o.Events.Subscribe(maxObservations, events.XID)
	}
	return w
}

// Board is where verdicts are published.
func (w *Watch) Board() *verdict.Board { return w.board }

// Observe takes what a witness says. It waits for nothing.
func (w *Watch) Observe(o Observation) {
	select {
	case w.observed <- o:
	default:
		w.dropped.Add(1)
	}
}

// Once judges by the rows and states of one time alone.
func Once(v *view.View, status []session.CollectorStatus, rules Rules, now time.Time) *verdict.Snapshot {
	w := New(Options{Rows: rows.New(nil, nil), Status: func() []session.CollectorStatus { return status }, Rules: rules, Logger: zap.NewNop()})
	w.o.Rows.Read(v, now)
	w.Sync(now)
	return w.board.Load()
}

// Run judges once a second until ctx ends. What is kept on disk is written by another
// goroutine, which ends first: a disk that hangs delays no verdict.
func (w *Watch) Run(ctx context.Context) error {
	files := w.open(time.Now())
	var writer sync.WaitGroup
	if files != nil {
		writer.Go(func() { w.write(files) })
	} else {
		w.log.Info("health of devices is kept in memory only: it is forgotten when the exporter restarts", zap.String("flag", "--health-directory"))
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		w.Sync(time.Now())
		w.save(files, time.Now(), false)
		select {
		case <-ctx.Done():
			w.save(files, time.Now(), true)
			writer.Wait()
			return nil
		case <-tick.C:
		}
	}
}

// Sync judges and publishes changed verdicts. One goroutine at a time calls it:
// Run, or in its place one that has a clock of its own.
func (w *Watch) Sync(now time.Time) {
	w.o.Rows.Sync(now)
	w.rowsMu.Lock()
	w.supplies = w.suppliers
	w.rowsMu.Unlock()
	w.round++
	w.updateDevices(w.o.Status(), now)
	w.judgeRows(now)
	w.applyObservations(now)
	for _, t := range w.devices {
		for _, c := range t.conditions {
			w.advance(t, c, now)
		}
	}
	w.conclude(now)
}

// Bind connects the rules with the cells of another View.
func (w *Watch) Bind(_ *view.View, sources []rows.Source, now time.Time) {
	w.rowsMu.Lock()
	defer w.rowsMu.Unlock()
	w.rebound = true
	w.sources, w.suppliers = make([]*sourceRules, len(sources)), map[string]string{}
	for i := range sources {
		s := &sources[i]
		for j := range s.Devices {
			if s.Supplies[j] {
				w.suppliers[s.Devices[j].ID] = s.Collector
			}
		}
		w.sources[i] = bindRules(s, w.o.Rules, w.o.Derived != nil, w.evaluations, now)
	}
	w.evaluations.forget(now)
}

// Row evaluates a row. Sync judges the outcome.
func (w *Watch) Row(row *rows.Row) {
	w.rowsMu.Lock()
	defer w.rowsMu.Unlock()
	w.sources[row.Source].evaluate(row)
}

// judgeRows applies what rows have said since the last judgement.
func (w *Watch) judgeRows(now time.Time) {
	if w.o.Derived != nil {
		w.o.Derived.Update(now)
	}
	w.rowsMu.Lock()
	defer w.rowsMu.Unlock()
	for _, s := range w.sources {
		s.apply(w.byID, w.o.Derived, now)
	}
	if !w.rebound && !w.regrouped {
		return
	}
	w.rebound, w.regrouped = false, false
	for _, s := range w.sources {
		for i := range s.Devices {
			if t := w.byID[s.Devices[i].ID]; t != nil {
				t.unjudged, t.dirty = unjudged(s.Source, i, w.o.Rules), true
			}
		}
	}
}

// advance brings a condition that no reading decides to now.
func (w *Watch) advance(t *tracked, c *condition, now time.Time) {
	switch {
	case c.rule.End == WhenTold && !c.active && !c.holds.IsZero():
		t.raise(c, now, verdict.Evidence{})
	case c.rule.Test == rules.Observed, c.rule.Test == rules.AtMost:
		t.expire(c, now)
	}
}

// applyObservations applies what was observed, and the XIDs that wait on the bus.
func (w *Watch) applyObservations(now time.Time) {
	dropped := w.dropped.Load()
	var xids <-chan events.Event
	if w.xids != nil {
		xids = w.xids.C
		dropped += w.xids.Dropped()
	}
	if dropped > w.lost {
		w.log.Warn("too many observations at a time: some are left out", zap.Uint64("left_out", dropped-w.lost))
		w.lost = dropped
	}
	for {
		select {
		case e := <-xids:
			w.applyObservation(&Observation{Reason: "xid", Code: e.Code, Device: e.Device.ID, PCIBusID: e.Device.PCIBusID, Time: e.Time, Source: e.Source, Text: e.Evidence}, now)
		case o := <-w.observed:
			w.applyObservation(&o, now)
		default:
			return
		}
	}
}

// applyObservation applies one Observation.
func (w *Watch) applyObservation(o *Observation, now time.Time) {
	at := o.Time
	if at.IsZero() || at.After(now) {
		at = now
	}
	rule := w.o.Rules.find(o.Reason, o.Code)
	t := w.boardNamed(o, rule != nil && !o.Over)
	switch {
	case t == nil:
	case o.Reason == ReasonReset:
		if at.After(t.reset) {
			t.recordReset(at)
		}
	case rule == nil:
	case o.Over:
		if c := t.find(rule.Name); c != nil && rule.End == WhenTold {
			t.end(c)
		}
	case rule.End == AfterReset && !at.After(t.reset):
		// It was before the reset.
	default:
		text := o.Text
		if text == "" {
			text = rule.Text
		}
		t.raise(t.condition(rule), at, verdict.Evidence{Time: at, Source: o.Source, Text: text})
	}
}

// boardNamed returns the board that an Observation is about. One that no collector knows is
// made, if that is wanted: the driver may not serve it any more.
func (w *Watch) boardNamed(o *Observation, wanted bool) *tracked {
	at := address(o.PCIBusID)
	t := w.byID[o.Device]
	if t == nil {
		t = w.byPCI[at]
	}
	for t != nil && t.device.Parent != "" && w.byID[t.device.Parent] != nil {
		t = w.byID[t.device.Parent]
	}
	if t != nil || at == (pci.Address{}) || !wanted {
		return t
	}
	if t = w.trackDevice(&collector.Device{ID: "pci:" + at.String(), Level: field.GPU, PCIBusID: at.String()}, ""); t != nil {
		w.byPCI[at] = t
	}
	return t
}

// conclude makes the verdicts that have changed, and publishes them.
func (w *Watch) conclude(now time.Time) {
	before := w.board.Load()
	changed, seen := len(before.Verdicts) != len(w.devices), false
	for _, t := range w.devices {
		seen = seen || t.touched
		if t.dirty && t.device.Parent == "" {
			for _, part := range w.devices { // which is as ill as its board
				part.dirty = part.dirty || part.device.Parent != "" && w.top(part) == t
			}
		}
	}
	again := seen && (now.Sub(w.refresh) >= refreshEvery || now.Before(w.refresh))
	for _, t := range w.devices {
		if !t.dirty && !(again && t.touched) {
			continue
		}
		parent := w.top(t)
		if parent == t {
			parent = nil
		}
		t.makeVerdict(now, parent, func(r *Rule) int { return w.order[r.Name] })
		changed = true
		w.report(t)
	}
	if !changed {
		return
	}
	if again {
		w.refresh = now
	}
	next := &verdict.Snapshot{Version: before.Version + 1, Time: now, Verdicts: make([]verdict.Verdict, 0, len(w.devices))}
	for _, t := range w.devices {
		next.Verdicts = append(next.Verdicts, t.verdict)
	}
	w.board.Store(next)
	w.unsaved = true
}

// top returns the board of a device.
func (w *Watch) top(t *tracked) *tracked {
	for range 4 {
		up := w.byID[t.device.Parent]
		if t.device.Parent == "" || up == nil {
			break
		}
		t = up
	}
	return t
}

// report logs and publishes a verdict that has another state or reason than what was last said of the
// device. It skips devices without values yet, new devices that are well, and parts, which have what their board has.
func (w *Watch) report(t *tracked) {
	v, before, is := &t.verdict, t.reported, reported{t.verdict.State, t.verdict.Reason}
	if is == before || is.Reason == ruleStarting { // the zero value is that it is well
		return
	}
	t.reported = is
	if t.device.Parent != "" {
		return
	}
	bad, level := v.State >= verdict.Degraded, zap.InfoLevel
	if bad {
		level = zap.WarnLevel
	}
	w.log.Log(level, "health of a device has changed",
		zap.String("device", v.Device.ID), zap.String("gpu", v.Device.GPU), zap.Stringer("state", v.State), zap.Stringer("before", before.State),
		zap.String("reason", v.Reason), zap.String("action", string(v.Action)), zap.String("text", v.Text))
	device := v.Device
	e := events.Event{Kind: events.Health, Device: &device, Text: "health is " + v.State.String(), Bad: bad}
	if v.State != verdict.OK {
		e.Text += ": " + v.Text + " (" + v.Reason + ")"
	}
	if v.Action != verdict.ActionNone {
		e.Text += "; action: " + string(v.Action)
	}
	w.o.Events.Publish(e)
}

// address returns the address of a board; the zero Address if id is not one.
func address(id string) pci.Address {
	at, _ := pci.Parse(id)
	return at.Board()
}

var descHealth = prometheus.NewDesc("warpgauge_device_health",
	"1, labelled with the verdict on the device: its state (ok, degraded, failed, unknown), the reason code, and what to do.",
	[]string{"collector", "device", "gpu", "state", "reason", "action"}, nil)

var descSign = prometheus.NewDesc("warpgauge_sign_active",
	"1 while an early sign holds; it is an observation of the rule of that name.", []string{"device", "gpu", "sign"}, nil)

// Describe sends the descriptions of the metrics.
func (w *Watch) Describe(ch chan<- *prometheus.Desc) {
	ch <- descHealth
	ch <- descSign
}

// Collect sends a series for each device, and for each early sign of a board.
func (w *Watch) Collect(ch chan<- prometheus.Metric) {
	s := w.board.Load()
	for i := range s.Verdicts {
		v := &s.Verdicts[i]
		ch <- prometheus.MustNewConstMetric(descHealth, prometheus.GaugeValue, 1,
			v.Collector, v.Device.ID, v.Device.GPU, v.State.String(), v.Reason, string(v.Action))
		if v.Device.Parent != "" { // parts have what their board has
			continue
		}
		for j := range v.Conditions {
			if r := w.o.Rules.find(v.Conditions[j].Reason, 0); r != nil && r.Derived != rules.NotDerived {
				ch <- prometheus.MustNewConstMetric(descSign, prometheus.GaugeValue, 1, v.Device.ID, v.Device.GPU, r.Name)
			}
		}
	}
}
