package fleet

import (
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/open-telemetry/opamp-go/protobufs"
	"go.uber.org/zap"

	"warpgauge/extensions/remote/opamp"
)

// core holds the whole state. Server.mu guards it.
type core struct {
	o       Options
	log     *zap.Logger
	store   *store
	started time.Time

	plan     *Plan     // nil: no valid directory was read yet
	planTime time.Time // when the plan came into use
	planErr  error     // error of the last reading; the previous plan stays in use

	*saved
	savedAt time.Time
	unsaved bool  // the state has unwritten changes
	saveErr error // error of the last write

	agents map[UID]*agent
	ticked time.Time
	totals totals
}

// Errors that are sent to agents.
var (
	errFull = errors.New("this server has as many agents as it may have")
	errUsed = errors.New("another agent reports with this credential; each needs its own, or the server's file of tokens must say that this one is shared")
)

func newCore(o Options, t totals, st *store, s *saved, now time.Time) *core {
	if st.damaged != nil {
		o.Log.Error("cannot use the state file; starting from its copy", zap.Error(st.damaged))
	}
	return &core{o: o, log: o.Log, store: st, saved: s, started: now, ticked: now, plan: &Plan{}, totals: t, agents: map[UID]*agent{}}
}

// silentAfter is the longest silence of an agent that counts as present.
const silentAfter = 3 * time.Minute

// bound ties an agent's uid to the credential that first used it.
type bound struct {
	Credential string    `json:"credential,omitempty"`
	Number     uint64    `json:"number"` // larger than that of all agents before
	Since      time.Time `json:"since"`
}

// report applies an agent's report and returns the answer. No agent may use the uid of another credential.
func (c *core) report(r *report, who credential, now time.Time) *protobufs.ServerToAgent {
	c.totals.messages.Inc()
	a := c.agents[r.uid]
	if b := c.bound[r.uid]; b != nil && b.Credential != who.name {
		c.totals.duplicates.Inc()
		uid := another(r.uid, who.name)
		return &protobufs.ServerToAgent{AgentIdentification: &protobufs.AgentIdentification{NewInstanceUid: uid[:]}}
	}
	if a != nil && r.labels != nil && r.labels["host.name"] != a.host() && a.host() != "" && now.Sub(a.seen) < silentAfter && !a.left {
		c.totals.duplicates.Inc()
		uid := another(r.uid, r.labels["host.name"])
		return &protobufs.ServerToAgent{AgentIdentification: &protobufs.AgentIdentification{NewInstanceUid: uid[:]}}
	}
	// Omitted parts are unchanged, so the server must have received every message since the last full one.
	if r.labels == nil && (a == nil || r.sequence != a.sequence+1) {
		if r.leaving {
			return &protobufs.ServerToAgent{}
		}
		return &protobufs.ServerToAgent{Flags: uint64(protobufs.ServerToAgentFlags_ServerToAgentFlags_ReportFullState)}
	}
	if a == nil {
		if err := c.bind(r.uid, who, now); err != nil {
			reason := refusedFull
			if errors.Is(err, errUsed) {
				reason = refusedLogin
			}
			c.totals.refused.WithLabelValues(reason).Inc()
			return &protobufs.ServerToAgent{ErrorResponse: &protobufs.ServerErrorResponse{
				Type: protobufs.ServerErrorResponseType_ServerErrorResponseType_Unavailable, ErrorMessage: err.Error(),
				Details: &protobufs.ServerErrorResponse_RetryInfo{RetryInfo: &protobufs.RetryInfo{RetryAfterNanoseconds: uint64(retryAfter)}},
			}}
		}
		a = &agent{uid: r.uid, window: newWindow()}
		c.agents[r.uid] = a
	}
	a.applyReport(r, now)
	if r.labels != nil {
		c.assign(a)
	}
	s := c.statusOf(a)
	if s == nil {
		return &protobufs.ServerToAgent{}
	}
	if r := s.Rollout; r.has(a.uid) && a.hash == r.To && a.failing == "" {
		a.checkLimits(a.cohort.Policy.Gates, r.members[a.uid].Before, now)
	}
	return &protobufs.ServerToAgent{RemoteConfig: c.offer(a, s)}
}

// another returns a new uid for an agent whose uid another host or credential uses, the same one each time.
func another(uid UID, by string) UID { return uuid.NewSHA1(uid, []byte(by)) }

// bind ties a uid to a credential. One that is not shared has one agent at a time, a node a few.
func (c *core) bind(uid UID, who credential, now time.Time) error {
	if c.bound[uid] != nil {
		return nil
	}
	others := 0 // of the same credential
	for former, b := range c.bound {
		switch a := c.agents[former]; {
		case b.Credential != who.name || who.shared:
		case a != nil && !a.left && now.Sub(a.seen) < silentAfter:
			others++
		default:
			c.forget(former)
		}
	}
	if others > 0 && (others > 2 || !strings.HasPrefix(who.name, "node ")) { // a node's service account may have one for each vendor
		return errUsed
	}
	if len(c.bound) >= c.o.MaxAgents && !c.room(now) {
		return errFull
	}
	c.lastAgent++
	c.bound[uid], c.unsaved = &bound{who.name, c.lastAgent, now.UTC()}, true
	return nil
}

func (c *core) forget(uid UID) {
	delete(c.bound, uid)
	delete(c.agents, uid)
}

// room forgets the agent that has been silent longest, longer than it reported before, or than a day.
func (c *core) room(now time.Time) bool {
	var oldest UID
	var longest time.Duration
	for uid, b := range c.bound {
		seen := c.started
		if a := c.agents[uid]; a != nil {
			seen = a.seen
		}
		silent := now.Sub(seen)
		if silent > longest && silent > min(max(silentAfter, seen.Sub(b.Since)), 24*time.Hour) {
			oldest, longest = uid, silent
		}
	}
	if longest == 0 {
		return false
	}
	c.forget(oldest)
	return true
}

// assign sets the agent's cohort.
func (c *core) assign(a *agent) {
	a.cohort = c.plan.first(func(o *Cohort) bool { return o.Selector.matches(a.labels) })
}

func (c *core) statusOf(a *agent) *status {
	if a.cohort == nil || !a.accepts() {
		return nil
	}
	return c.cohorts[a.cohort.Name]
}

// offer returns the list that the agent should get now, or nil if it needs none or the list is unknown.
func (c *core) offer(a *agent, s *status) *protobufs.AgentRemoteConfig {
	hash := wanted(s, a.uid, a.hash)
	if hash == a.hash {
		return nil
	}
	sum, _ := hex.DecodeString(hash) // it fails only for a hash that no list has
	if hash == noList {
		return &protobufs.AgentRemoteConfig{ConfigHash: sum, Config: &protobufs.AgentConfigMap{}}
	}
	l := c.lists[hash]
	if l == nil {
		return nil
	}
	kind := "text/csv"
	if l.YAML {
		kind = "application/yaml"
	}
	return &protobufs.AgentRemoteConfig{ConfigHash: sum, Config: &protobufs.AgentConfigMap{
		ConfigMap: map[string]*protobufs.AgentConfigFile{opamp.ConfigName: {Body: l.Content, ContentType: kind}},
	}}
}

// save writes the state. If that fails, the state in memory stays valid and tick tries again.
func (c *core) save(now time.Time) error {
	c.savedAt = now
	err := c.store.write(c.saved)
	if err != nil && c.saveErr == nil {
		c.log.Error("cannot write the state; no stage begins until a write succeeds", zap.Error(err))
	}
	c.saveErr, c.unsaved = err, err != nil
	return err
}

// commit sets a cohort's next state once it is on disk. No agent may see the state before.
func (c *core) commit(s *status, next status, now time.Time) error {
	before := *s
	*s = next
	err := c.save(now)
	if err != nil {
		*s = before
	}
	return err
}
