package fleet

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"
)

// State of a rollout.
type State string

// States.
const (
	Running State = "running" // or waits for agents
	Paused  State = "paused"
	Done    State = "done"
	Stopped State = "stopped" // by a gate, an operator or another list; the former list is back
)

// Rollout brings a list to a cohort in stages.
type Rollout struct {
	ID      uint64    `json:"id"`
	From    string    `json:"from,omitempty"` // list before; empty: none of this server's
	To      string    `json:"to"`
	State   State     `json:"state"`
	Stage   int       `json:"stage"` // from 1; 0: none has begun
	Soaked  float64   `json:"soaked_seconds"`
	Started time.Time `json:"started"`
	Reason  string    `json:"reason,omitempty"` // why it has stopped
	Final   bool      `json:"final,omitempty"`  // the stage has all agents, newcomers too

	members map[UID]member // agents of the stages so far
}

// member is an agent's state before it got the list.
type member struct {
	Before Numbers `json:"before,omitempty"`
	Former string  `json:"former,omitempty"` // hash of its own list, if the server had none for it
}

// active says whether the rollout is neither done nor stopped.
func (r *Rollout) active() bool { return r != nil && (r.State == Running || r.State == Paused) }

// has says whether the agent is in a stage of a rollout in progress.
func (r *Rollout) has(uid UID) bool {
	if !r.active() {
		return false
	}
	_, member := r.members[uid]
	return member
}

// status of a cohort, which outlives the process.
type status struct {
	Name     string   `json:"name"`
	Stable   string   `json:"stable_hash,omitempty"`   // the list that all should have
	Previous string   `json:"previous_hash,omitempty"` // the one before it
	Rejected string   `json:"rejected_hash,omitempty"` // is not tried again by itself
	Rollout  *Rollout `json:"rollout,omitempty"`

	begun  time.Time // when the stage began, as far as this process has seen it; zero: before
	counts *Counts
}

// wanted returns the hash of the list that an agent should have, empty if the server has none for it.
// last is the hash of the list that the agent has answered for.
func wanted(s *status, uid UID, last string) string {
	r := s.Rollout
	if r.active() && (r.Final || r.has(uid)) && (r.State == Running || last == r.To) {
		return r.To
	}
	if s.Stable == "" && r != nil && last == r.To {
		return r.members[uid].Former
	}
	return s.Stable
}

// choose returns which of the agents a stage adds to its members. A percentage is of the agents and is
// never exceeded, but the least is one. Those chosen first are the same in each rollout of a cohort.
func choose(s *Stage, cohort string, members map[UID]member, agents []*agent) (added []*agent) {
	var rest []*agent
	have := 0
	for _, a := range agents {
		if _, member := members[a.uid]; member {
			have++
		} else if s.Labels.matches(a.labels) {
			rest = append(rest, a)
		}
	}
	if s.Percent == 0 || s.Percent == 100 {
		return rest
	}
	n := max(1, int(math.Floor(s.Percent*float64(len(agents))/100))) - max(have, len(members))
	if n <= 0 {
		return nil
	}
	order := make(map[UID]uint64, len(rest))
	for _, a := range rest {
		sum := sha256.Sum256(append([]byte(cohort+"\x00"), a.uid[:]...))
		order[a.uid] = binary.BigEndian.Uint64(sum[:])
	}
	slices.SortFunc(rest, func(a, b *agent) int {
		return cmp.Or(cmp.Compare(order[a.uid], order[b.uid]), bytes.Compare(a.uid[:], b.uid[:]))
	})
	return rest[:min(n, len(rest))]
}

// Counts of a rollout's agents.
type Counts struct {
	Members int `json:"members"`
	Applied int `json:"applied"` // and well
	Pending int `json:"pending"`
	Refused int `json:"refused"` // say so, or have not acknowledged in time
	Failing int `json:"failing"` // a gate says so
	Silent  int `json:"silent"`

	example string // why, of one
}

// verdict returns why a stage must stop by its counts; it is empty if nothing is wrong.
func (c *Counts) verdict(tolerance float64) string {
	bad := c.Refused + c.Failing + c.Silent
	if bad == 0 || float64(bad) <= tolerance*float64(c.Members) {
		return ""
	}
	return fmt.Sprintf("%d of %d agents (%d refused it, %d fail a gate, %d are silent): %s", bad, c.Members, c.Refused, c.Failing, c.Silent, c.example)
}
