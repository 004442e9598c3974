// Package health judges each device by a table of rules (rules.go) and maintains its verdict.
package health

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
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
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

const (
	interval     = time.Second // between two judgements
	refreshEvery = time.Minute // between two publications of repeated sightings
	maxDevices   = 4096
	// maxObservations bounds the queue for the next judgement; excess Observations are dropped.
	maxObservations = 1024
)

// Observation is a report about a device from outside the readings, such as an XID in the kernel
// log or a board without a driver.
type Observation struct {
	// Reason is a rule's name without the code ("xid", "missing", "sxid_fatal") or ReasonReset. Unknown reasons are ignored.
	Reason   string
	Code     int    // of an XID, else 0
	Device   string // collector.Device.ID; if "", PCIBusID identifies the device
	PCIBusID string // in any usual form
	Time     time.Time
	Source   string
	Text     string // evidence; for an XID the driver's log line, which may name its kind
	Over     bool   // the fault is over, for rules that end WhenTold
	Confirms bool   // a library and the kernel's log both report the XID; without Text the library did so second
}

func (o *Observation) confirmsOnly() bool { return o.Confirms && o.Text == "" }

// SourceKernelLog is the Source of faults that the kernel log reports. Alone it does not fail a device that answers.
const SourceKernelLog = "kernel log"

// doubtFor is how long such a condition holds after the last line.
const doubtFor = time.Hour

// Reasons of Observations: a device was reset; a board has no driver or collector; an XID.
const (
	ReasonXID     = "xid"
	ReasonReset   = "reset"
	ReasonMissing = "missing"
)

// Options of New. Rows and Status are required.
type Options struct {
	Rows    *rows.Reader                     // source of the rows to judge
	Status  func() []session.CollectorStatus // in order of priority
	Rules   Rules
	Derived Derived       // early signs, or nil
	Board   *events.Board // for the verdicts; nil: New creates one
	// Events supplies the XIDs, and receives each verdict whose state, reason or action changed. It may be nil.
	Events *events.Bus
	Store  *Store // of the conditions; nil keeps them in memory only
	Booted time.Time
	BootID string // of the running kernel, or "" if unknown
	// Scope describes the device selection. After a change of Scope, earlier devices do not count as missing.
	Scope  string
	Logger *zap.Logger
}

// Watch judges devices. Run does the work; Board, Observe and the prometheus.Collector methods are safe for concurrent use.
type Watch struct {
	o        Options
	log      *zap.Logger
	board    *events.Board
	xids     *events.Subscription // nil without a bus
	observed chan Observation
	former   chan []byte   // what another process has written since the start
	shown    chan struct{} // other sources supply the values: judge at once
	dropped  atomic.Uint64 // number of Observations

	rowsMu      sync.Mutex // guards the following fields; held only to compute
	rebound     bool       // the View changed since the last judgement
	sources     []*sourceRules
	suppliers   map[string]string // collectors by supplied device; replaced, never changed
	evaluations evaluations

	// Used by Run's goroutine only.
	lost      uint64            // dropped XIDs and Observations, as last logged
	regrouped bool              // the devices changed since the last judgement
	supplies  map[string]string // suppliers at the last judgement
	devices   []*tracked
	byID      map[string]*tracked
	byPCI     map[pci.Address]*tracked // boards by address
	round     uint64
	refresh   time.Time // last publication of repeated sightings
	unsaved   bool
}

// New returns a Watch. Run starts it.
func New(o Options) *Watch {
	w := &Watch{
		o: o, board: cmp.Or(o.Board, new(events.Board)), log: o.Logger.Named("health"), observed: make(chan Observation, maxObservations),
		former: make(chan []byte, 1), shown: make(chan struct{}, 1), evaluations: evaluations{}, byID: map[string]*tracked{}, byPCI: map[pci.Address]*tracked{},
	}
	w.o.Rows.Follow(w)
	if o.Events != nil {
		w.xids = o.Events.Subscribe(maxObservations, events.XID)
	}
	return w
}

// Board returns the board with the verdicts.
func (w *Watch) Board() *events.Board { return w.board }

// Observe queues an Observation. It never blocks.
func (w *Watch) Observe(o Observation) {
	if !view.Offer(w.observed, o) {
		w.dropped.Add(1)
	}
}

// Run judges once a second, and after each change of the View, until ctx ends. A second goroutine writes
// the file, so that a hanging disk delays no verdict; it ends before Run returns.
func (w *Watch) Run(ctx context.Context) error {
	files := w.open(time.Now())
	var writer sync.WaitGroup
	if files != nil {
		writer.Go(func() { w.write(files) })
	} else {
		w.log.Info("keeping the health of devices in memory only; a restart forgets it", zap.String("flag", "--health-directory"))
	}
	for {
		w.Sync(time.Now())
		w.save(files, time.Now(), false)
		select {
		case <-ctx.Done():
			w.applyObservations(time.Now()) // not Sync: collectors may have stopped
			w.conclude(time.Now())
			w.save(files, time.Now(), true)
			writer.Wait()
			return nil
		case data := <-w.former:
			w.unsaved = true
			if err := w.restore(data); err != nil {
				w.log.Warn("cannot add the verdicts of an exporter that has ended", zap.Error(err))
			}
		case <-w.shown:
		case <-view.Tick(interval):
		}
	}
}

// Sync judges and publishes changed verdicts. Only one goroutine may call it: Run, or a caller with
// its own clock instead of Run.
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

// Bind connects the rules with the cells of a new View.
func (w *Watch) Bind(_ *view.View, sources []rows.Source, _ time.Time) {
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
		w.sources[i] = bindRules(s, w.o.Rules, w.o.Derived != nil, w.evaluations)
	}
	view.Offer(w.shown, struct{}{})
}

// Forget implements rows.Forgetter.
func (w *Watch) Forget(device string) {
	w.rowsMu.Lock()
	defer w.rowsMu.Unlock()
	maps.DeleteFunc(w.evaluations, func(k evaluationKey, _ *evaluation) bool { return k.device == device })
}

// Row evaluates a row. Sync judges the outcome.
func (w *Watch) Row(row *rows.Row) {
	w.rowsMu.Lock()
	defer w.rowsMu.Unlock()
	w.sources[row.Source].evaluate(row)
}

// judgeRows applies the rows read since the last judgement.
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

// advance updates a condition that no reading decides.
func (w *Watch) advance(t *tracked, c *condition, now time.Time) {
	switch {
	case (c.rule.End == WhenTold || c.rule.Test == field.Observed) && !c.active && !c.holds.IsZero():
		t.raise(c, now, events.Evidence{})
	case c.active && !t.restored && c.doubtful(t) && now.Sub(c.last) >= doubtFor:
		t.end(c)
	case c.rule.Test == field.Observed, slices.Contains(c.rule.Readings, field.AMDRecordAge):
		t.expire(c, now)
	}
}

// applyObservations applies the queued Observations, and the XIDs from the bus.
func (w *Watch) applyObservations(now time.Time) {
	dropped := w.dropped.Load() + w.o.Rows.Dropped()
	var xids <-chan events.Event
	if w.xids != nil {
		xids = w.xids.C
		dropped += w.xids.Dropped()
	}
	if dropped > w.lost {
		w.log.Warn("too many observations at a time; dropping some", zap.Uint64("left_out", dropped-w.lost))
		w.lost = dropped
	}
	var all []Observation
	for more := true; more; {
		select {
		case e := <-xids:
			all = append(all, Observation{Reason: ReasonXID, Code: e.Code, Device: e.Device.ID, PCIBusID: e.Device.PCIBusID, Time: e.Time, Source: e.Source, Text: e.Evidence})
		case o := <-w.observed:
			all = append(all, o)
		default:
			more = false
		}
	}
	last := func(o *Observation) int {
		switch {
		case o.confirmsOnly(): // last, because it needs a condition
			return 2
		case o.Source == SourceKernelLog: // it says more of the same XIDs
			return 1
		}
		return 0
	}
	slices.SortStableFunc(all, func(a, b Observation) int { return cmp.Or(last(&a)-last(&b), a.Time.Compare(b.Time)) })
	for i := range all {
		w.applyObservation(&all[i], now)
	}
}

// applyObservation applies one Observation.
func (w *Watch) applyObservation(o *Observation, now time.Time) {
	at := o.Time
	if at.IsZero() || at.After(now) {
		at = now
	}
	name := o.Reason
	if o.Code != 0 {
		name += "_" + strconv.Itoa(o.Code)
		if kind := kindOf(o.Code, o.Text); kind != "" {
			w.refine(o, name, kind, at)
			name += "_" + kind
		} else if t := w.boardNamed(o, false); t != nil && o.Text == "" && at.Sub(t.named[o.Code]).Abs() < 10*time.Second {
			o.Confirms = true // a line has named the kind
		}
	}
	rule := w.o.Rules.find(name)
	t := w.boardNamed(o, rule != nil && !o.Over)
	switch {
	case t == nil:
	case o.Reason == ReasonReset:
		if at.After(t.reset) {
			t.recordReset(at)
		}
	case o.confirmsOnly():
		for _, c := range t.conditions {
			if strings.HasPrefix(c.rule.Name+"_", name+"_") {
				c.logOnly, t.dirty = false, true
			}
		}
	case rule == nil:
	case o.Over:
		if c := t.find(rule.Name); c != nil && rule.End == WhenTold {
			t.end(c)
		}
	case rule.End == AfterReset && !at.After(t.reset):
		// It happened before the reset.
	default:
		c := t.condition(rule)
		c.logOnly = o.Source == SourceKernelLog && !o.Confirms && (c.logOnly || c.holds.IsZero())
		t.dirty = true
		t.raise(c, at, events.Evidence{Time: at, Source: o.Source, Text: cmp.Or(o.Text, rule.Text)})
	}
}

// refine ends the condition that the driver's XID raised, because the log line names its kind. Another recovery action ends the
// former one.
func (w *Watch) refine(o *Observation, name, kind string, at time.Time) {
	t := w.boardNamed(o, false)
	if t == nil {
		return
	}
	t.named[o.Code] = at
	for _, c := range t.conditions {
		drivers := !slices.ContainsFunc(c.evidence, func(e events.Evidence) bool { return e.Source == SourceKernelLog })
		if c.rule.Name == name && drivers && c.holds.Sub(at).Abs() < time.Minute || o.Code == recoveryXID && strings.HasPrefix(c.rule.Name, name+"_") && c.rule.Name != name+"_"+kind {
			t.end(c)
		}
	}
}

// boardNamed returns the board of an Observation, or nil. With wanted set it creates an unknown board, because the driver
// may have lost it.
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
	level := field.GPU
	if strings.HasPrefix(o.Reason, "sxid") {
		level = field.Switch
	}
	if t = w.trackDevice(&collector.Device{ID: "pci:" + at.String(), Level: level, PCIBusID: at.String()}, ""); t != nil {
		w.byPCI[at] = t
	}
	return t
}

// conclude computes and publishes changed verdicts.
func (w *Watch) conclude(now time.Time) {
	before := w.board.Load()
	changed, seen := len(before.Verdicts) != len(w.devices), false
	for _, t := range w.devices {
		seen = seen || t.touched
		if t.dirty && t.device.Parent == "" {
			for _, part := range w.devices { // a part is as bad as its board
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
		t.makeVerdict(now, parent)
		changed = true
		w.report(t)
	}
	if !changed {
		return
	}
	if again {
		w.refresh = now
	}
	next := &events.Snapshot{Version: before.Version + 1, Time: now, Verdicts: make([]events.Verdict, 0, len(w.devices))}
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

// report logs and publishes a verdict whose state, reason or action differs from the last report. It skips devices without
// values yet, new healthy devices, and parts, which follow their board.
func (w *Watch) report(t *tracked) {
	v, before, is := &t.verdict, t.reported, reported{t.verdict.State, t.verdict.Reason, t.verdict.Action}
	if is.Action == events.ActionNone {
		is.Action = ""
	}
	if is == before || is.Reason == ruleStarting { // the zero value means ok
		return
	}
	t.reported = is
	if t.device.Parent != "" {
		return
	}
	bad, level := v.State >= events.Degraded, zap.InfoLevel
	if bad {
		level = zap.WarnLevel
	}
	w.log.Log(level, "health of a device has changed",
		zap.String("device", v.Device.ID), zap.String("gpu", v.Device.GPU), zap.Stringer("state", v.State), zap.Stringer("before", before.State),
		zap.String("reason", v.Reason), zap.String("action", string(v.Action)), zap.String("text", v.Text))
	device := v.Device
	e := events.Event{Kind: events.Health, Device: &device, Text: "health is " + v.State.String(), Bad: bad}
	if v.State != events.OK {
		e.Text += ": " + v.Text + " (" + v.Reason + ")"
	}
	if v.Action != events.ActionNone {
		e.Text += "; action: " + string(v.Action)
	}
	w.o.Events.Publish(e)
}

// address parses the address of a board; it returns the zero Address for an invalid id.
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

// Collect sends a series for each device and for each early sign of a board.
func (w *Watch) Collect(ch chan<- prometheus.Metric) {
	s := w.board.Load()
	for i := range s.Verdicts {
		v := &s.Verdicts[i]
		ch <- prometheus.MustNewConstMetric(descHealth, prometheus.GaugeValue, 1,
			v.Collector, v.Device.ID, v.Device.GPU, v.State.String(), v.Reason, string(v.Action))
		if v.Device.Parent != "" { // parts follow their board
			continue
		}
		for j := range v.Conditions {
			if r := w.o.Rules.find(v.Conditions[j].Reason); r != nil && r.Derived != field.NotDerived {
				ch <- prometheus.MustNewConstMetric(descSign, prometheus.GaugeValue, 1, v.Device.ID, v.Device.GPU, r.Name)
			}
		}
	}
}
