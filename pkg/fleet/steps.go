package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/open-telemetry/opamp-go/protobufs"
	"go.uber.org/zap"
)

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
		Started: time.Now().UTC().Truncate(time.Second), members: map[UID]member{},
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
		if a.cohort == cohort && a.accepts() && !a.observes() && !a.left && now.Sub(a.seen) < silentAfter {
			n := a.window.numbers(now)
			out = append(out, candidate{uid: a.uid, labels: a.labels, member: member{Before: &n}})
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

// enter begins the next stage, or ends the rollout after the last. No agent gets the list before that is on
// the disk.
func (c *core) enter(cohort *Cohort, s *status, now time.Time) {
	next, r := *s, *s.Rollout
	next.Rollout = &r
	if r.Final {
		r.State, r.members = Done, map[UID]member{}
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
	lines := []line{{Cohort: &next}}
	l := &memberLine{Cohort: s.Name, Rollout: r.ID, Agents: map[string]member{}}
	former := map[string]*List{}
	for i := range added {
		a := &added[i]
		if own := c.locals[c.agents[a.uid].effective]; own != nil && s.Stable == "" {
			a.Former, former[own.Hash] = own.Hash, own
		}
		l.Agents[a.uid.String()] = a.member
	}
	for _, own := range former {
		lines = append(lines, line{List: own})
	}
	if c.write(append(lines, line{Members: l})...) != nil {
		return
	}
	maps.Copy(c.lists, former)
	for _, a := range added {
		r.members[a.uid] = a.member
	}
	*s = next
	c.said[s.Name], c.begun[s.Name] = 0, now
	for _, a := range there {
		agent := c.agents[a.uid]
		agent.before = a.Before
		if m, ok := r.members[a.uid]; ok {
			agent.before = m.Before
		}
		agent.breaches, agent.failing = 0, ""
		agent.window.restart(now)
	}
	c.log.Info("stage begun", zap.String("cohort", s.Name), zap.Uint64("rollout", r.ID), zap.Int("stage", r.Stage+1), zap.Int("agents", len(r.members)))
}

// count looks at all agents of a rollout.
func (c *core) count(cohort *Cohort, s *status, now time.Time) (n Counts) {
	r := s.Rollout
	n.Members = len(r.members)
	begun, seen := c.begun[s.Name]
	if !seen {
		begun = c.started
	}
	late := now.Sub(begun) > cohort.Policy.Timeout
	for uid := range r.members {
		a := c.agents[uid]
		why := ""
		switch {
		case a == nil && !late, a != nil && a.cohort == cohort && a.hash != r.To && !late:
			n.Pending++
		case a == nil:
			n.Silent, why = n.Silent+1, "it was not seen since this server started"
		case a.cohort != cohort || a.hash == r.To && a.observes():
			n.Members-- // its labels have changed, or it only reports
		case a.hash == r.To && a.refuses() != "":
			n.Refused, why = n.Refused+1, a.refuses()
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
	if r.From != "" {
		r.members = map[UID]member{} // all have the same list before
	}
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

// clean drops lists that no cohort needs. They leave the file when it is written again.
func (c *core) clean() {
	used := map[string]bool{}
	for _, a := range c.agents {
		used[a.effective] = true
	}
	maps.DeleteFunc(c.locals, func(hash string, _ *List) bool { return !used[hash] })
	clear(used)
	for _, s := range c.cohorts {
		used[s.Stable], used[s.Previous] = true, true
		if s.Rollout == nil {
			continue
		}
		used[s.Rollout.To], used[s.Rollout.From] = true, true
		for _, m := range s.Rollout.members {
			used[m.Former] = true
		}
	}
	if c.plan != nil {
		for _, cohort := range c.plan.Cohorts {
			used[cohort.List.Hash] = true
		}
	}
	maps.DeleteFunc(c.lists, func(hash string, _ *List) bool { return !used[hash] })
	maps.DeleteFunc(c.offers, func(hash string, _ *protobufs.AgentRemoteConfig) bool { return !used[hash] })
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
		c.begun[name] = now // what was not offered meanwhile is not late, and the operator has seen what fails
		for uid := range r.members {
			if a := c.agents[uid]; a != nil {
				a.breaches, a.failing = 0, ""
			}
		}
		return c.change(s, Running)
	case "rollback":
		if r.active() {
			c.stop(s, rolledBack, true)
			return c.saveErr
		}
		if r == nil || r.State != Done || s.Previous == "" {
			return errors.New("there is no rollout in progress, and no list before the present one")
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
