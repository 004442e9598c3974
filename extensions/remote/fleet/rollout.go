package fleet

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// State is a rollout's state.
type State string

// States of a rollout.
const (
	Running State = "running" // also while it waits for agents
	Paused  State = "paused"
	Done    State = "done"
	Stopped State = "stopped" // by a gate, an operator or a new list; the previous list is back
)

// Rollout brings a list to a cohort in stages.
type Rollout struct {
	ID      uint64    `json:"id"`
	From    string    `json:"from,omitempty"` // previous list; empty: none from this server
	To      string    `json:"to"`
	State   State     `json:"state"`
	Stage   int       `json:"stage"` // from 1; 0 before the first
	Soaked  float64   `json:"soaked_seconds"`
	Started time.Time `json:"started"`
	Reason  string    `json:"reason,omitempty"` // why it stopped
	Known   uint64    `json:"known,omitempty"`  // number of the newest agent before it
	Final   bool      `json:"final,omitempty"`  // the last stage includes all agents, also new ones

	members map[UID]member // agents of all stages so far
}

// member is an agent's state before the rollout.
type member struct {
	Before Numbers `json:"before,omitempty"`
}

// active reports whether the rollout is in progress.
func (r *Rollout) active() bool { return r != nil && (r.State == Running || r.State == Paused) }

// has reports whether the agent is in a stage of an active rollout.
func (r *Rollout) has(uid UID) bool {
	if !r.active() {
		return false
	}
	_, member := r.members[uid]
	return member
}

// status is the saved state of a cohort.
type status struct {
	Name     string   `json:"name"`
	Stable   string   `json:"stable_hash,omitempty"`   // list for all agents
	Previous string   `json:"previous_hash,omitempty"` // the stable list before
	Rejected string   `json:"rejected_hash,omitempty"` // not tried again automatically
	Rollout  *Rollout `json:"rollout,omitempty"`

	begun  time.Time // when this process saw the stage begin; zero: before it started
	counts *Counts
}

// noList is the hash of an offer without a list: the agent returns to its local one.
const noList = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// wanted returns the hash of the list that an agent should have, or "". last is the hash that it acknowledged last.
func wanted(s *status, uid UID, last string) string {
	r := s.Rollout
	if r.active() && (r.Final || r.has(uid)) && (r.State == Running || last == r.To) {
		return r.To
	}
	if s.Stable == "" && r != nil && !r.active() && last == r.To {
		return noList
	}
	return s.Stable
}

// choose returns random agents that a stage adds to its members: at most its percentage of the agents, but at least one.
func choose(s *Stage, members map[UID]member, agents []*agent) (added []*agent) {
	var rest []*agent
	for _, a := range agents {
		if _, member := members[a.uid]; !member && s.Labels.matches(a.labels) {
			rest = append(rest, a)
		}
	}
	if s.Percent == 0 || s.Percent == 100 {
		return rest
	}
	n := max(1, int(math.Floor(s.Percent*float64(len(agents))/100))) - len(members)
	rand.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] }) //nolint:gosec // seeded by the system
	return rest[:min(max(0, n), len(rest))]
}

// Counts counts a rollout's agents by state.
type Counts struct {
	Members int `json:"members"`
	Applied int `json:"applied"` // and healthy
	Pending int `json:"pending"`
	Refused int `json:"refused"` // refused, or not acknowledged in time
	Failing int `json:"failing"` // beyond a gate's limit
	Silent  int `json:"silent"`

	example string // reason of one agent
}

// verdict returns why a stage must stop, or "" if nothing is wrong.
func (c *Counts) verdict(tolerance float64) string {
	bad := c.Refused + c.Failing + c.Silent
	if bad == 0 || float64(bad) <= tolerance*float64(c.Members) {
		return ""
	}
	return fmt.Sprintf("%d of %d agents (%d refused it, %d fail a gate, %d are silent): %s", bad, c.Members, c.Refused, c.Failing, c.Silent, c.example)
}
