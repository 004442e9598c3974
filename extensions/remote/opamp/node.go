package opamp

import (
	"time"

	"github.com/google/uuid"

	"warpgauge/pkg/lists"
)

// Identity identifies this node.
type Identity struct {
	InstanceID uuid.UUID // stable
	Version    string    // of the exporter
	Hostname   string
	Labels     map[string]string // --node-label
}

// Node supplies the agent's reports. One goroutine calls its methods, which never block.
type Node interface {
	Facts() Facts
	Effective() *lists.Offer // list in service
}

// Facts is a snapshot of the node. Rollout gates compare facts before and after a change.
type Facts struct {
	GPUs       int      // number of GPUs found
	Models     []string // sorted, without duplicates
	Drivers    []string // sorted, without duplicates; known only after a list had the driver field
	Collectors []Component
	Devices    []Component // GPUs and instances, named by device id
	List       Component

	// Numbers for the gates.
	Stalled, Lost  int     // numbers of devices
	SampleSeconds  float64 // mean of the slowest source since its session began; negative: unknown
	MissedTicks    uint64  // since the sessions began
	AbsentFields   int     // pairs of device and field without a value
	Series         int     // on the page; 0: unknown
	ListHash       string  // SHA-256, hex
	AppliedSeconds int64   // Unix time
}

// Component is a part of the node with its state.
type Component struct {
	Name    string
	Healthy bool
	Status  string // a short text: "up", "stalled"
	Error   string // why it is not healthy; ignored if it is
	Since   time.Time
}
