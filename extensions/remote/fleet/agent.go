package fleet

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"
	"github.com/open-telemetry/opamp-go/protobufs"

	"warpgauge/extensions/remote/opamp"
)

// UID is an agent's instance uid.
type UID = uuid.UUID

// Bounds of one agent's record. Longer texts are cut; excess entries are dropped.
const (
	maxAttributes = 48
	maxKey        = 64
	maxValue      = 128
	maxError      = 512
	maxTroubles   = 8
)

// report is an agent's message, checked and cut to the bounds above.
type report struct {
	uid          UID
	sequence     uint64
	leaving      bool
	capabilities uint64
	labels       map[string]string // and attributes; nil: unchanged
	status       *listStatus       // nil: unchanged
	health       *health           // nil: unchanged
	effective    string            // hash of the list in service; empty: unchanged
}

// listStatus is an agent's report on its last offered list.
type listStatus struct {
	hash  string // of that list
	state protobufs.RemoteConfigStatuses
	err   string
}

type health struct {
	healthy  bool
	listErr  string   // why the list is not in service although it was applied
	numbers  Numbers  // missed ticks are a total
	troubles []string // unhealthy component groups and their errors
}

// newReport converts a message to a report. It returns nil for a message without an instance uid.
func newReport(m *protobufs.AgentToServer) *report {
	uid, err := uuid.FromBytes(m.InstanceUid)
	if err != nil || uid == uuid.Nil {
		return nil
	}
	r := &report{uid: uid, sequence: m.SequenceNum, leaving: m.AgentDisconnect != nil, capabilities: m.Capabilities}
	if d := m.AgentDescription; d != nil {
		r.labels = describe(d)
	}
	if s := m.RemoteConfigStatus; s != nil {
		r.status = &listStatus{state: s.Status, err: cut(s.ErrorMessage, maxError)}
		if len(s.LastRemoteConfigHash) <= sha256.Size {
			r.status.hash = hex.EncodeToString(s.LastRemoteConfigHash)
		}
	}
	if h := m.Health; h != nil {
		r.health = examine(h)
	}
	files := m.EffectiveConfig.GetConfigMap().GetConfigMap()
	if f := cmp.Or(files[opamp.ConfigName], files[""]); f != nil {
		r.effective = newList("", f.Body).Hash
	}
	return r
}

func describe(in *protobufs.AgentDescription) map[string]string {
	labels := map[string]string{}
	all := slices.Concat(in.IdentifyingAttributes, in.NonIdentifyingAttributes)
	for _, a := range all[:min(len(all), maxAttributes)] {
		key := strings.TrimPrefix(a.Key, opamp.LabelPrefix)
		labels[cut(key, maxKey)] = cut(text(a.Value), maxValue)
	}
	return labels
}

// text returns a value as text; array elements are separated by commas.
func text(v *protobufs.AnyValue) string {
	switch v := v.GetValue().(type) {
	case *protobufs.AnyValue_StringValue:
		return v.StringValue
	case *protobufs.AnyValue_IntValue:
		return strconv.FormatInt(v.IntValue, 10)
	case *protobufs.AnyValue_ArrayValue:
		var texts []string
		for _, entry := range v.ArrayValue.GetValues() {
			texts = append(texts, entry.GetStringValue())
		}
		return strings.Join(texts, ",")
	}
	return ""
}

// cut returns a copy of at most that many bytes, in whole characters, without those that a terminal would obey.
func cut(s string, most int) string {
	s = strings.ToValidUTF8(s[:min(len(s), most)], "")
	return strings.Clone(strings.Join(strings.FieldsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }), ""))
}

// examine extracts the gates' numbers and the unhealthy components.
func examine(in *protobufs.ComponentHealth) *health {
	h := &health{healthy: in.Healthy, numbers: Numbers{}}
	gates := in.ComponentHealthMap[opamp.HealthGates].GetComponentHealthMap()
	for name := range defaultLimits() {
		if v, err := strconv.ParseFloat(gates[name].GetStatus(), 64); err == nil && v >= 0 && !math.IsInf(v, 0) {
			h.numbers[name] = v
		}
	}
	if l := in.ComponentHealthMap[opamp.HealthList]; l != nil && !l.Healthy {
		h.listErr = cut(cmp.Or(l.LastError, l.Status), maxError)
	}
	// A group's error names its unhealthy part.
	for name, c := range in.ComponentHealthMap {
		if c != nil && !c.Healthy && len(h.troubles) < maxTroubles {
			h.troubles = append(h.troubles, cut(name+": "+cmp.Or(c.LastError, c.Status), maxValue))
		}
	}
	slices.Sort(h.troubles)
	return h
}

// agent is the server's record of an agent. Only the core uses it.
type agent struct {
	uid          UID
	sequence     uint64
	capabilities uint64
	seen         time.Time
	left         bool              // the agent said goodbye
	labels       map[string]string // and attributes
	listStatus
	effective string
	health
	refused, refusal string // hash of the last list that the agent refused, and its error
	window           *window

	cohort *Cohort // nil: no cohort matches

	// Fields for the current rollout.
	breaches int    // consecutive bad reports
	failing  string // reason; kept until the stage ends
}

// applyReport updates the agent from a report.
func (a *agent) applyReport(r *report, now time.Time) {
	a.sequence, a.capabilities = r.sequence, r.capabilities
	a.seen, a.left = now, r.leaving
	if r.labels != nil {
		a.labels = r.labels
	}
	if r.effective != "" {
		a.effective = r.effective
	}
	if s := r.status; s != nil {
		if s.hash != a.hash || s.state != a.state {
			a.window.restart(now)
		}
		a.listStatus = *s
	}
	if h := r.health; h != nil {
		a.health = *h
		a.window.add(h.numbers, now)
	}
	if why := a.refuses(); why != "" {
		a.refused, a.refusal = a.hash, why
	}
}

func (a *agent) host() string { return a.labels["host.name"] }

// accepts reports whether the agent takes lists.
func (a *agent) accepts() bool {
	return a.capabilities&uint64(protobufs.AgentCapabilities_AgentCapabilities_AcceptsRemoteConfig) != 0
}

// refuses returns why the agent's last answered list is not in service. It is empty if the list is in service or
// nothing is known yet. An exporter can also withdraw a list later because of its cost.
func (a *agent) refuses() string {
	switch {
	case a.state == protobufs.RemoteConfigStatuses_RemoteConfigStatuses_FAILED:
		return cmp.Or(a.err, "it does not say why")
	case a.state == protobufs.RemoteConfigStatuses_RemoteConfigStatuses_APPLIED:
		return a.listErr
	}
	return ""
}

// observes reports whether the agent only compares lists and never applies them.
func (a *agent) observes() bool {
	return a.state == protobufs.RemoteConfigStatuses_RemoteConfigStatuses_FAILED && strings.HasPrefix(a.err, opamp.ReportOnly)
}

// checkLimits compares the agent's numbers with those before the change. Three bad reports in a row fail the agent.
func (a *agent) checkLimits(limits map[string]Limit, before Numbers, now time.Time) {
	why := breach(limits, before, a.window.numbers(now))
	if why == "" {
		a.breaches = 0
		return
	}
	if a.breaches++; a.breaches >= 3 {
		a.failing = why
	}
}
