package health

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
)

const (
	maxEvidence     = 4                  // per condition
	maxEvidenceText = 256                // bytes
	maxUnjudged     = 64                 // per device
	evidencePause   = time.Minute        // between two similar pieces of evidence
	forgetAfter     = 7 * 24 * time.Hour // after a device went missing
)

// tracked is a judged device: a device that a collector reports or has reported, or a board that
// only the kernel log or the PCI bus reports.
type tracked struct {
	device    collector.Device
	collector string
	seen      time.Time // when a collector last reported it
	valued    bool      // it has had values
	blank     bool      // it answers, but every reading is blank
	gone      bool      // it is lost or absent, or returns from no call; not a switch that no collector reads, as on nodes without DCGM
	silent    time.Time // when a collector last reported it, but not as up
	restored  bool      // restored from the file; no collector has reported it since

	conditions []*condition
	unjudged   []events.Unjudged
	resets     map[string]resetReading // energy, by collector
	reset      time.Time               // the last detected reset is later
	named      map[int]time.Time       // when a log line last named the kind of an XID, by code

	verdict  events.Verdict
	reported reported // last published verdict
	dirty    bool     // the verdict may have changed
	touched  bool     // a condition was confirmed

	// For the current round.
	round  uint64
	rank   int
	status *session.DeviceStatus
}

// resetReading is the last value of the energy.
type resetReading struct {
	value float64
	at    time.Time
}

// reported is the verdict in the last event of a device.
type reported struct {
	State  events.State
	Reason string
	Action events.Action `json:",omitempty"` // "": none
}

// condition is the state of a rule on a device, active or not.
type condition struct {
	rule   *Rule
	active bool
	// logOnly is set while only the kernel's log reports it. That does not fail a device that is there.
	logOnly bool
	holds   time.Time // since when the rule's test has held continuously, or zero
	since   time.Time
	last    time.Time
	// evidence is replaced, never changed, because published Conditions share it.
	evidence []events.Evidence
}

// condition returns the condition of a rule and creates it if necessary.
func (t *tracked) condition(r *Rule) *condition {
	if c := t.find(r.Name); c != nil {
		return c
	}
	c := &condition{rule: r}
	t.conditions = append(t.conditions, c)
	return c
}

// find returns the condition of the named rule, or nil.
func (t *tracked) find(name string) *condition {
	for _, c := range t.conditions {
		if c.rule.Name == name {
			return c
		}
	}
	return nil
}

// raise records that a rule holds at a time.
func (t *tracked) raise(c *condition, now time.Time, e events.Evidence) {
	if c.holds.IsZero() || now.Before(c.holds) {
		c.holds = now
	}
	if now.After(c.last) {
		c.last = now
		t.touched = t.touched || c.active
	}
	c.addEvidence(e)
	if !c.active && now.Sub(c.holds) >= c.rule.For {
		c.active, c.since = true, c.holds
		t.dirty = true
	}
}

// clear records that a rule does not hold now. A condition that ends AfterQuiet expires after its
// quiet time; others wait for their own end.
func (t *tracked) clear(c *condition, now time.Time) {
	c.holds = time.Time{}
	t.expire(c, now)
}

// expire ends a condition that was not seen for its quiet time.
func (t *tracked) expire(c *condition, now time.Time) {
	if now.Before(c.last) { // the clock was set back
		c.last = now
	}
	if c.active && c.rule.End == AfterQuiet && now.Sub(c.last) >= c.rule.Quiet {
		t.end(c)
	}
}

// end ends a condition.
func (t *tracked) end(c *condition) {
	c.holds = time.Time{}
	if !c.active {
		return
	}
	c.active, c.evidence = false, nil
	t.dirty = true
}

// needsEvidence limits how often evidence texts are built.
func (c *condition) needsEvidence(now time.Time) bool {
	n := len(c.evidence)
	return n == 0 || now.Sub(c.evidence[n-1].Time) >= evidencePause || now.Before(c.evidence[n-1].Time)
}

// addEvidence adds evidence. If the text repeats, it only updates the time.
func (c *condition) addEvidence(e events.Evidence) {
	if e == (events.Evidence{}) {
		return
	}
	if len(e.Text) > maxEvidenceText {
		e.Text = strings.ToValidUTF8(e.Text[:maxEvidenceText], "")
	}
	next := slices.Clone(c.evidence)
	if n := len(next); n > 0 && next[n-1].Source == e.Source && next[n-1].Text == e.Text {
		if !e.Time.After(next[n-1].Time) {
			return
		}
		next[n-1].Time = e.Time
	} else {
		next = append(next, e)
	}
	c.evidence = next[max(0, len(next)-maxEvidence):]
}

// recordReset ends the conditions that a reset after the given time ends. Those observed since may be later than the reset.
func (t *tracked) recordReset(after time.Time) {
	t.reset = after
	for _, c := range t.conditions {
		if c.rule.End == AfterReset && (c.rule.Test != field.Observed || !c.last.After(after)) {
			t.end(c)
		}
	}
}

// makeVerdict builds the verdict from the active conditions.
func (t *tracked) makeVerdict(now time.Time, parent *tracked) {
	var all []*condition
	for _, c := range t.conditions {
		if c.active {
			all = append(all, c)
		}
	}
	if parent != nil { // a part is never better than its board
		for _, c := range parent.conditions {
			if c.active && t.find(c.rule.Name).inactive() {
				all = append(all, c)
			}
		}
	}
	slices.SortFunc(all, func(a, b *condition) int {
		doubt := map[bool]int{true: 1}
		return cmp.Or(cmp.Compare(b.weight(t), a.weight(t)), doubt[a.doubtful(t)]-doubt[b.doubtful(t)], cmp.Compare(a.rule.rank, b.rule.rank))
	})
	v := events.Verdict{Device: t.device, Collector: t.collector, Action: events.ActionNone, Unjudged: t.unjudged}
	for _, c := range all {
		action, text := c.rule.Action, c.text()
		if c.doubtful(t) {
			action, text = events.ActionNone, text+" (only the kernel's log says so)"
		}
		v.Conditions = append(v.Conditions, events.Condition{
			Reason: c.rule.Name, State: c.state(t), Action: action, Text: text, Since: c.since, Last: c.last, Evidence: c.evidence,
		})
	}
	switch {
	case len(all) > 0 && v.Conditions[0].State == events.OK && t.valued: // an informational rule
	case len(all) > 0 && (t.valued || v.Conditions[0].State > events.Unknown):
		first := &v.Conditions[0]
		v.State, v.Reason, v.Text, v.Action = first.State, first.Reason, first.Text, first.Action
	case len(all) > 0: // the reason why there are no values yet
		v.State, v.Reason, v.Text = events.Unknown, v.Conditions[0].Reason, v.Conditions[0].Text
	case !t.valued:
		v.State, v.Reason, v.Text = events.Unknown, ruleStarting, "no values yet"
	}
	v.Since = t.verdict.Since
	if v.Reason != t.verdict.Reason || v.Since.IsZero() {
		v.Since = now
		if len(all) > 0 {
			v.Since = v.Conditions[0].Since
		}
	}
	t.verdict, t.dirty, t.touched = v, false, false
}

// doubtful reports whether only the kernel's log reports the condition, although the device is there.
func (c *condition) doubtful(t *tracked) bool { return c.logOnly && !t.gone }

// state returns how bad the condition is for a device.
func (c *condition) state(t *tracked) events.State {
	if c.doubtful(t) {
		return min(c.rule.State, events.Degraded)
	}
	return c.rule.State
}

// weight orders conditions. That a device has no values weighs more than a fault with which it may stay in service.
func (c *condition) weight(t *tracked) int {
	switch state := c.state(t); {
	case state == events.Failed:
		return 5
	case state == events.Degraded && c.rule.Action == events.ActionDrain && !c.doubtful(t):
		return 4
	case c.rule.Name == ruleStalled:
		return 3
	default:
		return int(state)
	}
}

func (c *condition) inactive() bool { return c == nil || !c.active }

// text returns the rule's text. For rules about states it appends the library's message.
func (c *condition) text() string {
	if c.rule.Test == field.OfState && len(c.evidence) > 0 && c.evidence[len(c.evidence)-1].Text != "" {
		return c.rule.Text + ": " + c.evidence[len(c.evidence)-1].Text
	}
	return c.rule.Text
}
