// Package remote takes field lists from outside of this node: it checks them against the
// guard, has them applied, keeps the last good one on disk, and ends those whose time is over.
// Where they come from is a Source; there is one for URLs here, and one for OpAMP servers in
// package opamp.
package remote

import (
	"context"
	"net/url"
	"time"
)

// Offer is a field list that a server delivers. It must not be changed.
type Offer struct {
	Origin   string // where from, without secrets: a URL
	Revision string // what the server calls it: an ETag, the hex of OpAMP's config hash; can be empty
	Content  []byte // a counters CSV, or a YAML configuration file that has only a list
	YAML     bool
}

// Status says what became of an Offer. The texts are labels.
type Status string

// Statuses.
const (
	Applied   Status = "applied"
	Unchanged Status = "unchanged" // it is in service already
	Reported  Status = "reported"  // --remote-config=report: it would be applied
	Failed    Status = "failed"    // the list in service stays
)

// Outcome is what became of an Offer.
type Outcome struct {
	Status  Status
	Tried   string    // SHA-256 of the Offer's content, hex
	Running string    // of the list in service
	Refused []Refusal // what the guard or the parser refused; Failed
	Err     error     // Failed, and why, in words for the server's operator
	Until   time.Time // when the former list returns by itself; zero: it stays
}

// Refusal is one thing that is wrong with a list.
type Refusal struct {
	Line int // from 1; 0: the whole list
	Text string
}

// Deliver hands over an Offer and waits until it is in service or refused. It can be called
// by any goroutine; calls are served one after the other.
type Deliver func(ctx context.Context, o *Offer) *Outcome

// Source asks a server until ctx ends. It calls deliver for each list that the server has
// for this node, at the start also for one that it had delivered before.
type Source interface {
	Run(ctx context.Context, deliver Deliver) error
}

// Node is what a Source may tell a server about this node. Functions can be called by any
// goroutine and wait for nothing.
type Node struct {
	InstanceID string // stable: kept next to the last good list
	Version    string // of the exporter
	Hostname   string
	Labels     map[string]string // --node-label
	Facts      func() Facts
	Effective  func() *Offer // the list in service
	// Changed is closed when Facts or Effective have changed; ask again for the next change.
	Changed func() <-chan struct{}
}

// Facts are of one time. A gate of a rollout compares them before and after a change.
type Facts struct {
	GPUs       int      // found
	Models     []string // sorted, each once
	Drivers    []string // versions, sorted, each once; only if a list has had the field for them
	Collectors []Component
	Devices    []Component // GPUs and instances: name is the device's id
	List       Component

	// Numbers that gates look at.
	Stalled, Lost  int     // devices
	SampleSeconds  float64 // mean of the slowest source since its session began; negative: not known
	MissedTicks    uint64  // since the start of the exporter
	AbsentFields   int     // pairs of device and field without a value
	Series         int     // on the page; 0: not known yet
	ListHash       string  // SHA-256, hex
	AppliedSeconds int64   // Unix time
}

// Component is a part of the node and how it is.
type Component struct {
	Name    string
	Healthy bool
	Status  string // a short text: "up", "stalled"
	Error   string // why it is not healthy
	Since   time.Time
}

// Origin is a URL as it is shown: without user, password, query and fragment, which can
// have secrets.
func Origin(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment, u.RawFragment, u.ForceQuery = nil, "", "", "", false
	return u.String()
}
