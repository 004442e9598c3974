package fleet

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/open-telemetry/opamp-go/protobufs"
	"github.com/open-telemetry/opamp-go/server/types"
	"go.uber.org/zap"

	"warpgauge/pkg/opamp"
)

// core is the whole state. One goroutine uses it.
type core struct {
	o       Options
	log     *zap.Logger
	store   *store
	started time.Time

	plan     *Plan // nil: none was good yet
	planTime time.Time
	planErr  error // of the last reading; the plan before is in use

	agents  map[UID]*agent
	peers   map[netip.Addr]int // agents of each address
	cohorts map[string]*status
	counts  map[string]Counts // of the rollouts, by cohort
	lists   map[string]*List
	offers  map[string]*protobufs.AgentRemoteConfig // by hash
	lastID  uint64
	saveErr error                    // of the last write
	unsaved map[string]bool          // cohorts whose state is not on the disk
	said    map[string]time.Duration // soak that is on the disk, by cohort
	begun   map[string]time.Time     // when a stage began, as far as this process has seen it; none: before
	ticked  time.Time

	totals totals
}

// totals only grow.
type totals struct {
	messages, websocket, offers, duplicates, evicted, saveErrors, ignored uint64
	results                                                               map[[2]string]uint64 // by cohort and result
}

// Errors that an agent gets.
var (
	errFull    = errors.New("this server has as many agents as it may have")
	errUnnamed = errors.New("an instance uid has 16 bytes, not all of them zero")
	errBusy    = errors.New("the server is busy")
	errTooMuch = errors.New("more bytes than a message may have")
)

func newCore(o Options, st *store, s *saved, now time.Time) *core {
	c := &core{
		o: o, log: o.Log, store: st, started: now, ticked: now,
		agents: map[UID]*agent{}, peers: map[netip.Addr]int{}, cohorts: s.cohorts, counts: map[string]Counts{},
		lists: s.lists, offers: map[string]*protobufs.AgentRemoteConfig{}, lastID: s.last, unsaved: map[string]bool{}, said: map[string]time.Duration{}, begun: map[string]time.Time{},
	}
	c.totals.results = map[[2]string]uint64{}
	return c
}

// answer is what an agent gets.
type answer struct {
	config *protobufs.AgentRemoteConfig // nil: nothing new
	full   bool                         // the agent must report all
	uid    *UID                         // the uid that it must use from now on
	err    error
}

// silentAfter is when an agent that says nothing is no longer counted among those that are there.
const silentAfter = 3 * time.Minute

// report takes a message and returns the answer.
func (c *core) report(r *report, now time.Time) answer {
	c.totals.messages++
	if r.conn != nil {
		c.totals.websocket++
	}
	a := c.agents[r.uid]
	if a != nil && r.described != nil && r.described.host != a.host && a.host != "" && now.Sub(a.seen) < silentAfter && !a.left {
		c.totals.duplicates++
		uid := another(r.uid, r.described.host)
		return answer{uid: &uid}
	}
	// What a message leaves out is as before, so the server must have seen all since the last whole one.
	if r.described == nil && (a == nil || r.sequence != a.sequence+1) {
		return answer{full: !r.leaving}
	}
	if a == nil {
		if !c.room(r.peer, now) {
			return answer{err: errFull}
		}
		a = &agent{uid: r.uid, peer: r.peer, window: newWindow()}
		c.agents[r.uid] = a
		c.peers[r.peer]++
	}
	if a.peer != r.peer {
		c.leave(a.peer)
		c.peers[r.peer]++
	}
	if a.conn != nil && a.conn != r.conn {
		_ = a.conn.Disconnect() // the agent has another connection now
	}
	a.take(r, now)
	if r.described != nil {
		c.assign(a)
	}
	s := c.statusOf(a)
	if s == nil {
		return answer{}
	}
	c.judge(a, s, now)
	return answer{config: c.offer(a, s, now)}
}

// closed takes note that an agent's WebSocket is gone.
func (c *core) closed(uid UID, conn types.Connection) {
	if a := c.agents[uid]; a != nil && a.conn == conn {
		a.conn = nil
	}
}

// another returns the uid that the agent on a host gets in place of one that another host uses. It is
// always the same, so that an agent which does not keep it makes no more of them.
func another(uid UID, host string) (out UID) {
	sum := sha256.Sum256(append(uid[:], host...))
	copy(out[:], sum[:])
	out[6] = out[6]&0x0f | 0x80 // version 8 of RFC 9562: of the server's own making
	out[8] = out[8]&0x3f | 0x80
	return out
}

// room makes room for another agent of an address. An agent that is silent goes first, then one
// of the address that has the most, if it has more than the newcomer's.
func (c *core) room(peer netip.Addr, now time.Time) bool {
	if len(c.agents) < c.o.MaxAgents {
		return true
	}
	var crowded netip.Addr
	for p, n := range c.peers {
		if n > c.peers[crowded] {
			crowded = p
		}
	}
	var victim *agent
	for _, a := range c.agents {
		if now.Sub(a.seen) > silentAfter && (victim == nil || a.seen.Before(victim.seen)) {
			victim = a
		}
	}
	if victim == nil && c.peers[crowded] > c.peers[peer]+1 {
		for _, a := range c.agents {
			if a.peer == crowded {
				victim = a
				break
			}
		}
	}
	if victim == nil {
		return false
	}
	c.forget(victim)
	c.totals.evicted++
	return true
}

func (c *core) forget(a *agent) {
	delete(c.agents, a.uid)
	c.leave(a.peer)
}

func (c *core) leave(peer netip.Addr) {
	if c.peers[peer]--; c.peers[peer] <= 0 {
		delete(c.peers, peer)
	}
}

// assign finds the agent's cohort.
func (c *core) assign(a *agent) {
	a.cohort = nil
	if c.plan == nil {
		return
	}
	for _, cohort := range c.plan.Cohorts {
		if cohort.Selector.matches(a.labels, a.attributes) {
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

// judge looks at a member of a rollout, or at one of the control group.
func (c *core) judge(a *agent, s *status, now time.Time) {
	r := s.Rollout
	if r == nil || r.State != Running && r.State != Paused {
		return
	}
	before, member := r.members[a.uid]
	switch {
	case member && a.hash != r.To:
		return
	case a.before == nil && member:
		a.before = before // this server has started again
	case a.before == nil:
		n := a.window.numbers(now)
		a.before = &n
		return
	}
	a.judge(&a.cohort.Policy.Gates, now)
}

// Between two offers of the same list to an agent that does not answer for it.
const (
	offerAgain    = 20 * time.Second
	maxOfferAgain = 20 * time.Minute
)

// offer returns the list that the agent should get now, nil if it needs none.
func (c *core) offer(a *agent, s *status, now time.Time) *protobufs.AgentRemoteConfig {
	hash := wanted(s, a.uid, a.hash)
	if hash == "" || hash == a.hash || hash == localHash && a.hash == "" {
		return nil
	}
	if a.offered.hash != hash {
		a.offered = offer{hash: hash}
	}
	if n := a.offered.count; n > 0 && now.Sub(a.offered.at) < min(offerAgain<<min(n-1, 10), maxOfferAgain) {
		return nil
	}
	config := c.config(hash)
	if config == nil {
		return nil
	}
	a.offered.at = now
	a.offered.count++
	c.totals.offers++
	return config
}

// take puts a plan that was read into use. An error leaves the one before.
func (c *core) take(p *Plan, err error, now time.Time) {
	if err != nil {
		if c.planErr == nil || c.planErr.Error() != err.Error() {
			c.log.Warn("directory refused, the one before stays in use", zap.Error(err))
		}
		c.planErr = err
		return
	}
	c.planErr = nil
	if c.plan != nil && c.plan.Hash == p.Hash {
		return
	}
	c.plan, c.planTime = p, time.Now()
	c.log.Info("directory taken", zap.String("hash", p.Hash), zap.Int("cohorts", len(p.Cohorts)))
	for _, a := range c.agents {
		c.assign(a)
	}
	for _, cohort := range p.Cohorts {
		c.lists[cohort.List.Hash] = cohort.List
		if c.cohorts[cohort.Name] == nil {
			c.cohorts[cohort.Name] = &status{Name: cohort.Name}
		}
	}
	for name := range c.cohorts {
		if c.planned(name) == nil {
			delete(c.cohorts, name)
			delete(c.counts, name)
			c.unsaved[name] = true
		}
	}
	c.clean()
	c.tick(now)
}

func (c *core) planned(name string) *Cohort {
	if c.plan != nil {
		for _, cohort := range c.plan.Cohorts {
			if cohort.Name == name {
				return cohort
			}
		}
	}
	return nil
}

// tick lets rollouts begin, move and stop.
func (c *core) tick(now time.Time) {
	// A process that slept has not watched its agents.
	passed := min(now.Sub(c.ticked), 5*time.Second)
	c.ticked = now
	c.save()
	if c.plan == nil {
		return
	}
	for _, cohort := range c.plan.Cohorts {
		c.follow(cohort, c.cohorts[cohort.Name])
	}
	for _, cohort := range c.plan.Cohorts {
		if s := c.cohorts[cohort.Name]; s.Rollout != nil && (s.Rollout.State == Running || s.Rollout.State == Paused) {
			c.step(cohort, s, passed, now)
		}
	}
}

// follow begins a rollout if the directory has another list than the cohort.
func (c *core) follow(cohort *Cohort, s *status) {
	to := cohort.List.Hash
	r := s.Rollout
	switch {
	case r != nil && r.State == Paused, r.active() && r.To == to:
		return
	case to == s.Stable:
		if r.active() {
			c.stop(s, "the directory has the former list again", false)
		}
		return
	case to == s.Rejected:
		if r.active() {
			c.stop(s, "the directory has a list that was rejected before", false)
		}
		return
	}
	if r.active() {
		c.stop(s, "the directory has another list", false)
	}
	c.begin(cohort, s)
}

// begin makes a rollout of the list in the directory. Its first stage begins when there are agents.
func (c *core) begin(cohort *Cohort, s *status) {
	next := *s
	next.Rejected = ""
	next.Rollout = &Rollout{
		ID: c.lastID + 1, From: s.Stable, To: cohort.List.Hash, State: Running, Stage: -1,
		Started: time.Now().UTC().Truncate(time.Second), members: map[UID]*Numbers{},
	}
	if cohort.Policy.Manual {
		next.Rollout.State = Held
	}
	if err := c.write(line{List: cohort.List}, line{Cohort: &next}); err != nil {
		return // it is tried again
	}
	c.lastID++
	*s = next
	c.log.Info("rollout made", zap.String("cohort", s.Name), zap.Uint64("rollout", s.Rollout.ID), zap.String("to", s.Rollout.To), zap.String("state", string(s.Rollout.State)))
}

// there returns the agents of a cohort that can take part in a stage.
func (c *core) there(cohort *Cohort, now time.Time) (out []candidate) {
	for _, a := range c.agents {
		if a.cohort == cohort && a.accepts() && !a.left && now.Sub(a.seen) < silentAfter {
			n := a.window.numbers(now)
			out = append(out, candidate{uid: a.uid, labels: a.labels, before: &n})
		}
	}
	return out
}

// step moves the rollout of a cohort.
func (c *core) step(cohort *Cohort, s *status, passed time.Duration, now time.Time) {
	r := s.Rollout
	if now.Sub(c.started) < c.o.Warmup {
		return
	}
	if r.Stage < 0 {
		if r.State == Running {
			c.enter(cohort, s, now)
		}
		return
	}
	counts := c.count(cohort, s, now)
	c.counts[s.Name] = counts
	if r.State != Running {
		return
	}
	if why := counts.verdict(cohort.Policy.Tolerance); why != "" {
		c.stop(s, why, true)
		return
	}
	if counts.Pending > 0 {
		return
	}
	r.Soaked += passed
	if c.soaked(cohort, r) {
		c.enter(cohort, s, now)
		return
	}
	if on := c.said[s.Name]; r.Soaked-on >= time.Minute || r.Soaked < on {
		if c.write(line{Cohort: s}) == nil {
			c.said[s.Name] = r.Soaked
		}
	}
}

func (c *core) soaked(cohort *Cohort, r *Rollout) bool {
	stages := cohort.Policy.Stages
	return r.Soaked >= stages[min(r.Stage, len(stages)-1)].Soak
}

// enter begins the next stage, or ends the rollout after the last. Nobody gets the list before that is on
// the disk.
func (c *core) enter(cohort *Cohort, s *status, now time.Time) {
	next, r := *s, *s.Rollout
	next.Rollout = &r
	if r.Final {
		r.State, r.members = Done, map[UID]*Numbers{}
		next.Previous, next.Stable = s.Stable, r.To
		if c.write(line{Cohort: &next}) == nil {
			*s = next
			c.ended(s, "done")
		}
		return
	}
	stages := cohort.Policy.Stages
	r.Stage = min(r.Stage+1, len(stages)-1)
	stage := stages[r.Stage]
	there := c.there(cohort, now)
	added := choose(stage, s.Name, r.members, there)
	if len(added) == 0 && (len(r.members) == 0 || len(stage.Labels) != 0) {
		return // the stage waits for agents
	}
	r.Soaked, r.Final = 0, stage.Percent == 100
	l := &memberLine{Cohort: s.Name, Rollout: r.ID, Agents: map[string]*Numbers{}}
	for _, a := range added {
		l.Agents[a.uid.String()] = a.before
	}
	if c.write(line{Cohort: &next}, line{Members: l}) != nil {
		return
	}
	for _, a := range added {
		r.members[a.uid] = a.before
	}
	*s = next
	c.said[s.Name], c.begun[s.Name] = 0, now
	for _, a := range there {
		agent := c.agents[a.uid]
		if first := r.members[a.uid]; first != nil {
			agent.before = first
		} else {
			agent.before = a.before
		}
		agent.breaches, agent.failing = 0, ""
	}
	c.log.Info("stage begun", zap.String("cohort", s.Name), zap.Uint64("rollout", r.ID), zap.Int("stage", r.Stage+1), zap.Int("agents", len(r.members)))
}

// count looks at all agents of a rollout.
func (c *core) count(cohort *Cohort, s *status, now time.Time) (n Counts) {
	r := s.Rollout
	n.Members = len(r.members)
	late := now.Sub(c.begun[s.Name]) > cohort.Policy.Timeout
	for uid := range r.members {
		a := c.agents[uid]
		why := ""
		switch {
		case a == nil && !late, a != nil && a.cohort == cohort && a.hash != r.To && !late:
			n.Pending++
		case a == nil:
			n.Silent, why = n.Silent+1, "it was not seen since this server started"
		case a.cohort != cohort:
			n.Members-- // its labels have changed
		case a.hash == r.To && a.state == protobufs.RemoteConfigStatuses_RemoteConfigStatuses_FAILED:
			n.Refused, why = n.Refused+1, a.err
		case now.Sub(a.seen) > cohort.Policy.Timeout:
			n.Silent, why = n.Silent+1, "it says nothing since "+a.seen.UTC().Format(time.RFC3339)
		case a.hash != r.To:
			n.Refused, why = n.Refused+1, "it has not acknowledged the list in time"
		case a.state != protobufs.RemoteConfigStatuses_RemoteConfigStatuses_APPLIED:
			if late {
				n.Refused, why = n.Refused+1, "it has not applied the list in time"
			} else {
				n.Pending++
			}
		case a.failing != "":
			n.Failing, why = n.Failing+1, a.failing
		default:
			n.Applied++
		}
		if why != "" && n.example == "" {
			name := uid.String()
			if a != nil {
				name = cmp.Or(a.host, name)
			}
			n.example = name + ": " + why
		}
	}
	for _, a := range c.agents {
		if _, member := r.members[a.uid]; !member && a.cohort == cohort && a.before != nil && a.hash != r.To {
			n.Control++
			if a.failing != "" || now.Sub(a.seen) > cohort.Policy.Timeout {
				n.Worse++
			}
		}
	}
	return n
}

const rolledBack = "an operator rolled it back"

// stop ends a rollout: its agents get the former list back. That happens even if the disk is full.
func (c *core) stop(s *status, why string, reject bool) {
	next, r := *s, *s.Rollout
	r.State, r.Reason = Stopped, why
	r.members = map[UID]*Numbers{}
	next.Rollout = &r
	if reject {
		next.Rejected = r.To
	}
	*s = next
	c.unsaved[s.Name] = true
	c.save()
	c.ended(s, "stopped")
}

func (c *core) ended(s *status, result string) {
	r := s.Rollout
	delete(c.counts, s.Name)
	delete(c.said, s.Name)
	for _, a := range c.agents {
		if a.cohort != nil && a.cohort.Name == s.Name {
			a.before, a.breaches, a.failing = nil, 0, ""
		}
	}
	c.totals.results[[2]string{s.Name, result}]++
	log := c.log.Info
	if result != "done" {
		log = c.log.Warn
	}
	log("rollout "+result, zap.String("cohort", s.Name), zap.Uint64("rollout", r.ID), zap.String("reason", r.Reason))
	c.clean()
}

// clean drops lists that no cohort needs.
func (c *core) clean() {
	used := map[string]bool{}
	for _, s := range c.cohorts {
		used[s.Stable], used[s.Previous] = true, true
		if s.Rollout != nil {
			used[s.Rollout.To], used[s.Rollout.From] = true, true
		}
	}
	if c.plan != nil {
		for _, cohort := range c.plan.Cohorts {
			used[cohort.List.Hash] = true
		}
	}
	for _, hash := range slices.Sorted(maps.Keys(c.lists)) {
		if !used[hash] && c.write(line{Drop: hash}) == nil {
			delete(c.lists, hash)
			delete(c.offers, hash)
		}
	}
}

// write appends lines to the file.
func (c *core) write(lines ...line) error {
	err := c.store.append(lines...)
	if err == nil && c.store.full() {
		err = c.store.compact(c.lines())
	}
	c.wrote(err)
	return err
}

func (c *core) wrote(err error) {
	if err != nil {
		c.totals.saveErrors++
		if c.saveErr == nil {
			c.log.Error("state not written, no stage begins until it is", zap.Error(err))
		}
	}
	c.saveErr = err
}

// save writes what could not be written before.
func (c *core) save() {
	for name := range c.unsaved {
		l := line{Gone: name}
		if s := c.cohorts[name]; s != nil {
			l = line{Cohort: s}
		}
		if c.write(l) != nil {
			return
		}
		delete(c.unsaved, name)
	}
}

// lines are all that a file needs.
func (c *core) lines() (out []line) {
	out = append(out, line{Version: &versionLine{Format: 1, Last: c.lastID}})
	for _, hash := range slices.Sorted(maps.Keys(c.lists)) {
		out = append(out, line{List: c.lists[hash]})
	}
	for _, name := range slices.Sorted(maps.Keys(c.cohorts)) {
		s := c.cohorts[name]
		out = append(out, line{Cohort: s})
		if s.Rollout == nil || len(s.Rollout.members) == 0 {
			continue
		}
		l := &memberLine{Cohort: name, Rollout: s.Rollout.ID, Agents: map[string]*Numbers{}}
		for uid, before := range s.Rollout.members {
			l.Agents[uid.String()] = before
		}
		out = append(out, line{Members: l})
	}
	return out
}

// Commands of operators.

func (c *core) command(name, verb, who string, now time.Time) error {
	cohort, s := c.planned(name), c.cohorts[name]
	if cohort == nil || s == nil {
		return fmt.Errorf("there is no cohort %q", name)
	}
	c.log.Info("command", zap.String("cohort", name), zap.String("command", verb), zap.String("from", who))
	r := s.Rollout
	switch verb {
	case "rollout":
		switch {
		case r.active() && r.State == Held:
			return c.change(s, Running)
		case r.active():
			return fmt.Errorf("a rollout is %s", r.State)
		case cohort.List.Hash == s.Stable:
			return errors.New("the cohort has the list of the directory")
		}
		held := *cohort
		held.Policy.Manual = false
		c.begin(&held, s)
		return c.saveErr
	case "pause":
		if r == nil || r.State != Running {
			return errors.New("no rollout is running")
		}
		return c.change(s, Paused)
	case "resume":
		if r == nil || r.State != Paused {
			return errors.New("no rollout is paused")
		}
		c.begun[name] = now // what was not offered meanwhile is not late
		return c.change(s, Running)
	case "rollback":
		if r.active() {
			c.stop(s, rolledBack, true)
			return c.saveErr
		}
		if r == nil || r.State != Done {
			return errors.New("there is no rollout that could be undone")
		}
		s.Rejected, s.Stable, s.Previous = s.Stable, s.Previous, ""
		r.State, r.Reason = Stopped, rolledBack
		c.unsaved[name] = true
		c.save()
		c.totals.results[[2]string{name, "rolled back"}]++
		return c.saveErr
	}
	return fmt.Errorf("there is no command %q", verb)
}

func (c *core) change(s *status, to State) error {
	next, r := *s, *s.Rollout
	next.Rollout = &r
	r.State = to
	err := c.write(line{Cohort: &next})
	if err == nil {
		*s = next
	}
	return err
}

// config is what an agent gets for a list; nil if the list is not known.
func (c *core) config(hash string) *protobufs.AgentRemoteConfig {
	if ready := c.offers[hash]; ready != nil {
		return ready
	}
	files := map[string]*protobufs.AgentConfigFile{}
	if hash != localHash {
		l := c.lists[hash]
		if l == nil {
			return nil
		}
		kind := "text/csv"
		if l.YAML {
			kind = "application/yaml"
		}
		files[opamp.ConfigName] = &protobufs.AgentConfigFile{Body: l.Content, ContentType: kind}
	}
	sum, err := hex.DecodeString(hash)
	if err != nil {
		return nil
	}
	c.offers[hash] = &protobufs.AgentRemoteConfig{Config: &protobufs.AgentConfigMap{ConfigMap: files}, ConfigHash: sum}
	return c.offers[hash]
}

// waiting returns agents with a WebSocket that should get a list now.
func (c *core) waiting(now time.Time, most int) (out []push) {
	for _, a := range c.agents {
		if len(out) == most {
			break
		}
		if s := c.statusOf(a); s != nil && a.conn != nil {
			if config := c.offer(a, s, now); config != nil {
				out = append(out, push{a.conn, &protobufs.ServerToAgent{InstanceUid: a.uid[:], RemoteConfig: config}})
			}
		}
	}
	return out
}

// push is a message to an agent that did not ask.
type push struct {
	to      types.Connection
	message *protobufs.ServerToAgent
}
