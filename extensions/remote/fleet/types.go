package fleet

import "time"

// Fleet is the answer of /api/v1/fleet. What is not known is left out.
type Fleet struct {
	Time      time.Time      `json:"time"`
	Version   string         `json:"version"`
	Directory DirectoryState `json:"directory"`
	StateErr  string         `json:"state_error,omitempty"` // why the state cannot be written
	Agents    int            `json:"agents"`
	Limit     int            `json:"agents_limit"`
	NoCohort  int            `json:"agents_without_cohort"`
	Cohorts   []CohortState  `json:"cohorts"`
}

// DirectoryState is about the directory of lists.
type DirectoryState struct {
	Hash  string     `json:"hash,omitempty"`  // of the one in use
	Taken *time.Time `json:"taken,omitempty"` // when it came into use
	Err   string     `json:"error,omitempty"` // why its present content is not in use
}

// CohortState is about one cohort and its last rollout.
type CohortState struct {
	status
	List      string         `json:"list"` // file of the directory
	Directory string         `json:"directory_hash"`
	Agents    map[string]int `json:"agents"` // by condition
	Stages    int            `json:"stages"`
	Soak      float64        `json:"soak_seconds"` // of the rollout's stage
	Counts    *Counts        `json:"counts,omitempty"`
}

// Conditions of an agent.
const (
	Current  = "current"  // answers for the list it should have, and has applied it
	Waiting  = "pending"  // has not answered yet
	Refused  = "refused"  // answers with a failure
	Failing  = "failing"  // has a new list, and a gate says that it does harm
	Silent   = "silent"   // has said nothing for minutes
	Observed = "observed" // takes no lists, or there is none for it
)

// Agents is the answer of /api/v1/agents, in the order of their hosts.
type Agents struct {
	Time   time.Time    `json:"time"`
	Agents []AgentState `json:"agents"`
}

// AgentState is about one agent.
type AgentState struct {
	UID       string            `json:"uid"`
	Host      string            `json:"host,omitempty"`
	Version   string            `json:"version,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"` // and attributes
	Cohort    string            `json:"cohort,omitempty"`
	Condition string            `json:"condition"`
	Wanted    string            `json:"wanted_hash,omitempty"`
	Answered  string            `json:"answered_hash,omitempty"` // the list it answers for
	Effective string            `json:"effective_hash,omitempty"`
	Error     string            `json:"error,omitempty"`        // why it refused, or which gate fails
	Refused   string            `json:"refused_hash,omitempty"` // the last list that it refused
	Refusal   string            `json:"refusal,omitempty"`      // why
	Canary    bool              `json:"canary,omitempty"`
	Healthy   bool              `json:"healthy"`
	Troubles  []string          `json:"troubles,omitempty"`
	Seen      time.Time         `json:"seen"`
	Numbers   Numbers           `json:"numbers"` // by gate; unknown ones are left out
	Before    Numbers           `json:"before,omitempty"`
}
