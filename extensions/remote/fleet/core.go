package fleet

import (
	"encoding/hex"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/open-telemetry/opamp-go/protobufs"
	"go.uber.org/zap"

	"warpgauge/extensions/remote/opamp"
)

// core is the whole state. Server.mu guards it.
type core struct {
	o       Options
	log     *zap.Logger
	store   *store
	started time.Time

	plan     *Plan     // empty: none was good yet
	planTime time.Time // when it was taken
	planErr  error     // of the last reading; the plan before is in use

	*saved
	savedAt time.Time
	unsaved bool  // something has to be written
	saveErr error // of the last write

	agents map[UID]*agent
	locals map[string]*List // that agents had on their own, at most maxLocals
	ticked time.Time
	totals totals
}

// errFull is an error that an agent gets.
var errFull = errors.New("this server has as many agents as it may have")

func newCore(o Options, t totals, st *store, s *saved, now time.Time) *core {
	return &core{
		o: o, log: o.Log, store: st, saved: s, started: now, ticked: now, plan: &Plan{}, totals: t, agents: map[UID]*agent{}, locals: map[string]*List{},
	}
}

// maxLocals bounds the agents' own lists that are kept. A fleet has few, and the first rollout of a cohort
// returns to them.
const maxLocals = 64

// silentAfter is how long an agent may be silent and still count as present.
const silentAfter = 3 * time.Minute

// report takes a message and returns the answer.
func (c *core) report(r *report, now time.Time) *protobufs.ServerToAgent {
	c.totals.messages.Inc()
	a := c.agents[r.uid]
	if a != nil && r.labels != nil && r.labels["host.name"] != a.host() && a.host() != "" && now.Sub(a.seen) < silentAfter && !a.left {
		c.totals.duplicates.Inc()
		uid := another(r.uid, r.labels["host.name"])
		return &protobufs.ServerToAgent{AgentIdentification: &protobufs.AgentIdentification{NewInstanceUid: uid[:]}}
	}
	// What a message leaves out is as before, so the server must have seen all since the last whole one.
	if r.labels == nil && (a == nil || r.sequence != a.sequence+1) {
		if r.leaving {
			return &protobufs.ServerToAgent{}
		}
		return &protobufs.ServerToAgent{Flags: uint64(protobufs.ServerToAgentFlags_ServerToAgentFlags_ReportFullState)}
	}
	if a == nil {
		if !c.room(now) {
			c.totals.refused.WithLabelValues(refusedFull).Inc()
			return unable(errFull)
		}
		a = &agent{uid: r.uid, window: newWindow()}
		c.agents[r.uid] = a
	}
	if l := r.effective; l != nil && c.locals[l.Hash] == nil && len(c.locals) < maxLocals && len(l.Content) <= maxListBytes {
		c.locals[l.Hash] = l
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

// another returns the uid for an agent whose uid another host uses. It is always the same for a host, so that an agent which
// does not keep it gets it again.
func another(uid UID, host string) UID { return uuid.NewSHA1(uid, []byte(host)) }

// room makes room for another agent: the one that is silent for longest is forgotten.
func (c *core) room(now time.Time) bool {
	if len(c.agents) < c.o.MaxAgents {
		return true
	}
	var oldest *agent
	for _, a := range c.agents {
		if oldest == nil || a.seen.Before(oldest.seen) {
			oldest = a
		}
	}
	if now.Sub(oldest.seen) <= silentAfter {
		return false
	}
	delete(c.agents, oldest.uid)
	return true
}

// assign finds the agent's cohort.
func (c *core) assign(a *agent) {
	a.cohort = nil
	for _, cohort := range c.plan.Cohorts {
		if cohort.Selector.matches(a.labels) {
			a.cohort = cohort
			return
		}
	}
}

func (c *core) statusOf(a *agent) *status {
	if a.cohort == nil || !a.accepts() {
		return nil
	}
	return c.cohorts[a.cohort.Name]
}

// offer returns the list that the agent should get now, nil if it needs none.
func (c *core) offer(a *agent, s *status) *protobufs.AgentRemoteConfig {
	hash := wanted(s, a.uid, a.hash)
	if hash == "" || hash == a.hash {
		return nil
	}
	return c.config(hash)
}

// save writes the state. What was not written stays in force, and tick tries again.
func (c *core) save(now time.Time) error {
	c.savedAt = now
	err := c.store.write(c.saved)
	if err != nil && c.saveErr == nil {
		c.log.Error("state not written, no stage begins until it is", zap.Error(err))
	}
	c.saveErr, c.unsaved = err, err != nil
	return err
}

// commit gives a cohort its next state if that can be written. No agent may see it before.
func (c *core) commit(s *status, next status, now time.Time) error {
	before := *s
	*s = next
	err := c.save(now)
	if err != nil {
		*s = before
	}
	return err
}

// config returns the message with a list; nil if the list is unknown.
func (c *core) config(hash string) *protobufs.AgentRemoteConfig {
	l := c.lists[hash]
	sum, err := hex.DecodeString(hash)
	if l == nil || err != nil {
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
