package opamp

import (
	"time"

	"github.com/google/uuid"

	"warpgauge/pkg/lists"
)

// Identity tells this node from others.
type Identity struct {
	InstanceID uuid.UUID // stable: kept next to the last good list
	Version    string    // of the exporter
	Hostname   string
	Labels     map[string]string // --node-label
}

// Node supplies the agent's reports. One goroutine calls its methods, which never block.
type Node interface {
	Facts() Facts
	Effective() *lists.Offer // the list in service
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
	MissedTicks    uint64  // since the sessions began
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
