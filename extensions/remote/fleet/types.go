package fleet

import "time"

// Fleet is the answer of /api/v1/fleet. Unknown values are omitted.
type Fleet struct {
	Time      time.Time      `json:"time"`
	Version   string         `json:"version"`
	Directory DirectoryState `json:"directory"`
	StateErr  string         `json:"state_error,omitempty"` // error of the last write of the state
	Agents    int            `json:"agents"`
	Limit     int            `json:"agents_limit"`
	NoCohort  int            `json:"agents_without_cohort"`
	Cohorts   []CohortState  `json:"cohorts"`
}

// DirectoryState describes the directory of lists.
type DirectoryState struct {
	Hash  string     `json:"hash,omitempty"`  // of the content in use
	Taken *time.Time `json:"taken,omitempty"` // when that came into use
	Err   string     `json:"error,omitempty"` // why the current content is not in use
}

// CohortState describes a cohort and its last rollout.
type CohortState struct {
	status
	List      string         `json:"list"` // file name
	Directory string         `json:"directory_hash"`
	Agents    map[string]int `json:"agents"` // count by condition
	Stages    int            `json:"stages"`
	Soak      float64        `json:"soak_seconds"` // time that the stage has soaked
	Counts    *Counts        `json:"counts,omitempty"`
}

// Agent conditions.
const (
	Current  = "current"  // applied the list that it should have
	Waiting  = "pending"  // has not acknowledged yet
	Refused  = "refused"  // acknowledged with a failure
	Failing  = "failing"  // has a new list and is beyond a gate's limit
	Silent   = "silent"   // has not reported for minutes
	Observed = "observed" // takes no lists, or the server has none for it
)

// Agents is the answer of /api/v1/agents, ordered by host.
type Agents struct {
	Time   time.Time    `json:"time"`
	Agents []AgentState `json:"agents"`
}

// AgentState describes one agent.
type AgentState struct {
	UID       string            `json:"uid"`
	Host      string            `json:"host,omitempty"`
	Version   string            `json:"version,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"` // and attributes
	Cohort    string            `json:"cohort,omitempty"`
	Condition string            `json:"condition"`
	Wanted    string            `json:"wanted_hash,omitempty"`
	Answered  string            `json:"answered_hash,omitempty"` // last acknowledged list
	Effective string            `json:"effective_hash,omitempty"`
	Error     string            `json:"error,omitempty"`        // why it refused, or the exceeded gate
	Refused   string            `json:"refused_hash,omitempty"` // last refused list
	Refusal   string            `json:"refusal,omitempty"`      // its error
	Canary    bool              `json:"canary,omitempty"`
	Healthy   bool              `json:"healthy"`
	Troubles  []string          `json:"troubles,omitempty"`
	Seen      time.Time         `json:"seen"`
	Numbers   Numbers           `json:"numbers"` // by gate; unknown numbers are omitted
	Before    Numbers           `json:"before,omitempty"`
}
