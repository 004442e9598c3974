package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/open-telemetry/opamp-go/protobufs"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// applyPlan puts a new plan into use. If err is not nil, the previous plan stays.
func (c *core) applyPlan(p *Plan, err error, now time.Time) {
	if err != nil {
		if c.planErr == nil || c.planErr.Error() != err.Error() {
			c.log.Warn("refusing the directory; the previous one stays in use", zap.Error(err))
		}
		c.planErr = err
		return
	}
	c.planErr = nil
	if c.plan.Hash == p.Hash {
		return
	}
	c.plan, c.planTime = p, time.Now()
	c.log.Info("read a new directory", zap.String("hash", p.Hash), zap.Int("cohorts", len(p.Cohorts)))
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
			c.totals.results.DeletePartialMatch(prometheus.Labels{"cohort": name})
		}
	}
	c.clean()
	c.tick(now)
}

func (c *core) planned(name string) *Cohort {
	return c.plan.first(func(o *Cohort) bool { return o.Name == name })
}

// tick starts, advances and stops rollouts.
func (c *core) tick(now time.Time) {
	passed := min(now.Sub(c.ticked).Seconds(), 5) // after a suspension the process has not watched its agents
	if c.ticked = now; c.unsaved {
		_ = c.save(now) // saveErr records the error
	}
	for _, cohort := range c.plan.Cohorts {
		s := c.cohorts[cohort.Name]
		c.follow(cohort, s, now)
		if s.Rollout.active() {
			c.step(cohort, s, passed, now)
		}
	}
}

// follow starts a rollout if the cohort's list in the directory has changed.
func (c *core) follow(cohort *Cohort, s *status, now time.Time) {
	r, to := s.Rollout, cohort.List.Hash
	if r.active() && (r.State == Paused || r.To == to) {
		return
	}
	if r.active() {
		c.stop(s, "the directory has another list", false, now)
	}
	if to != s.Stable && to != s.Rejected {
		c.begin(cohort, s, now)
	}
}

// begin creates a rollout of the directory's list. Its first stage waits for agents.
func (c *core) begin(cohort *Cohort, s *status, now time.Time) {
	next := *s
	next.Rejected = ""
	next.Rollout = &Rollout{
		ID: c.lastID + 1, From: s.Stable, To: cohort.List.Hash, State: Running,
		Started: time.Now().UTC().Truncate(time.Second), Known: c.lastAgent, members: map[UID]member{},
	}
	if c.commit(s, next, now) != nil {
		return // the next tick tries again
	}
	c.lastID++
	c.log.Info("rollout begun", zap.String("cohort", s.Name), zap.Uint64("rollout", c.lastID), zap.String("to", s.Rollout.To))
}

// candidates returns a cohort's agents that can join a stage. An agent that is silent for the cohort's timeout cannot: it
// would stop the rollout at once. An agent that came after the rollout began cannot, except in the cohort's first rollout: it
// may have come for the rollout.
func (c *core) candidates(cohort *Cohort, r *Rollout, now time.Time) (out []*agent) {
	present := min(silentAfter, cohort.Policy.Timeout)
	for _, a := range c.agents {
		known := r.From == "" || r.Known == 0 || c.bound[a.uid].Number <= r.Known
		if known && a.cohort == cohort && a.accepts() && !a.observes() && !a.left && now.Sub(a.seen) < present {
			out = append(out, a)
		}
	}
	return out
}

// step advances the rollout of a cohort.
func (c *core) step(cohort *Cohort, s *status, passed float64, now time.Time) {
	r := s.Rollout
	if now.Sub(c.started) < c.o.Warmup {
		return
	}
	if r.Stage == 0 {
		if r.State == Running {
			c.enter(cohort, s, now)
		}
		return
	}
	s.counts = c.count(cohort, s, now)
	if r.State != Running {
		return
	}
	if why := s.counts.verdict(cohort.Policy.Tolerance.Value); why != "" {
		c.stop(s, why, true, now)
		return
	}
	if s.counts.Pending > 0 {
		return
	}
	r.Soaked += passed
	if r.Soaked >= cohort.Policy.stage(r).Soak.Seconds() {
		c.enter(cohort, s, now)
		return
	}
	if now.Sub(c.savedAt) >= time.Minute {
		_ = c.save(now) // saveErr records the error
	}
}

// stage returns the rollout's current stage; the directory may have fewer stages now.
func (p *Policy) stage(r *Rollout) *Stage { return &p.Stages[min(max(r.Stage, 1), len(p.Stages))-1] }

// enter begins the next stage, or ends the rollout after the last one. The state is on disk before any agent gets the list.
func (c *core) enter(cohort *Cohort, s *status, now time.Time) {
	next, r := *s, *s.Rollout
	next.Rollout = &r
	if r.Final {
		r.State, r.members = Done, map[UID]member{}
		next.Previous, next.Stable = s.Stable, r.To
		if c.commit(s, next, now) == nil {
			c.ended(s, "done")
		}
		return
	}
	r.Stage = min(r.Stage+1, len(cohort.Policy.Stages))
	stage := cohort.Policy.stage(&r)
	added := choose(stage, r.members, c.candidates(cohort, &r, now))
	if len(added) == 0 && (len(r.members) == 0 || len(stage.Labels) != 0) {
		return // wait for agents
	}
	r.Soaked, r.Final, r.members, next.begun = 0, stage.Percent == 100, maps.Clone(r.members), now
	for _, a := range added {
		r.members[a.uid] = member{Before: a.window.numbers(now)}
	}
	if c.commit(s, next, now) != nil {
		return
	}
	c.forgive(&r)
	c.log.Info("stage begun", zap.String("cohort", s.Name), zap.Uint64("rollout", r.ID), zap.Int("stage", r.Stage), zap.Int("agents", len(r.members)))
}

// forgive restarts the observation of a rollout's agents.
func (c *core) forgive(r *Rollout) {
	for uid := range r.members {
		if a := c.agents[uid]; a != nil {
			a.breaches, a.failing = 0, ""
			a.window.restart(c.ticked)
		}
	}
}

// count counts the agents of a rollout by state.
func (c *core) count(cohort *Cohort, s *status, now time.Time) *Counts {
	r := s.Rollout
	n := &Counts{Members: len(r.members)}
	begun := s.begun
	if begun.IsZero() {
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
			n.Members-- // its labels changed, or it only reports
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
				name = cmp.Or(a.host(), name)
			}
			n.example = name + ": " + why
		}
	}
	return n
}

const rolledBack = "an operator rolled it back"

// stop ends a rollout and returns its agents to the previous list, even if the disk is full.
func (c *core) stop(s *status, why string, reject bool, now time.Time) {
	r := *s.Rollout
	r.State, r.Reason, r.members = Stopped, why, map[UID]member{}
	s.Rollout = &r
	if reject {
		s.Rejected = r.To
	}
	_ = c.save(now) // saveErr records the error
	c.ended(s, "stopped")
}

func (c *core) ended(s *status, result string) {
	r := s.Rollout
	s.counts = nil
	c.totals.results.WithLabelValues(s.Name, result).Inc()
	log := c.log.Info
	if result != "done" {
		log = c.log.Warn
	}
	log("rollout "+result, zap.String("cohort", s.Name), zap.Uint64("rollout", r.ID), zap.String("reason", r.Reason))
	c.clean()
}

// clean drops the lists that no cohort needs. The next write removes them from the file.
func (c *core) clean() {
	used := map[string]bool{}
	for _, s := range c.cohorts {
		used[s.Stable], used[s.Previous] = true, true
		if s.Rollout != nil {
			used[s.Rollout.To], used[s.Rollout.From] = true, true
		}
	}
	for _, cohort := range c.plan.Cohorts {
		used[cohort.List.Hash] = true
	}
	maps.DeleteFunc(c.lists, func(hash string, _ *List) bool { return !used[hash] })
}

// command executes an operator's command.
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
		case r.active():
			return fmt.Errorf("a rollout is %s", r.State)
		case cohort.List.Hash == s.Stable:
			return errors.New("the cohort has the list of the directory")
		}
		c.begin(cohort, s, now)
		return c.saveErr
	case "pause":
		if r == nil || r.State != Running {
			return errors.New("no rollout is running")
		}
		return c.change(s, Paused, now)
	case "resume":
		if r == nil || r.State != Paused {
			return errors.New("no rollout is paused")
		}
		s.begun = now // a list that was not offered during the pause is not late, and the operator knows the failures
		c.forgive(r)
		return c.change(s, Running, now)
	case "rollback":
		if r.active() {
			c.stop(s, rolledBack, true, now)
			return c.saveErr
		}
		if r == nil || r.State != Done || s.Previous == "" {
			return errors.New("there is no rollout in progress, and no list before the present one")
		}
		s.Rejected, s.Stable, s.Previous = s.Stable, s.Previous, ""
		r.State, r.Reason = Stopped, rolledBack
		c.totals.results.WithLabelValues(name, "rolled back").Inc()
		return c.save(now)
	}
	return fmt.Errorf("there is no command %q", verb)
}

func (c *core) change(s *status, to State, now time.Time) error {
	next, r := *s, *s.Rollout
	next.Rollout = &r
	r.State = to
	return c.commit(s, next, now)
}
