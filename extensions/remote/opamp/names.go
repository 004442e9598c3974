// Package opamp is the OpAMP agent: it reports to a server what this node is and how it is, and
// takes field lists from it. The server can do nothing else: packages, connection settings,
// restart commands, custom messages and settings of own telemetry are not even decoded.
//
// It has a transport of its own over opamp-go's package protobufs. The client of
// opamp-go v0.23.0 was measured and not taken: it reads an answer of any length (one of 1 GiB took 3.4 GB
// of memory; the specification demands a bound), has no time limit (a server that hangs is never asked again), does not
// back off after HTTP status 500 and loses its report then, polls without jitter, and adds
// 580 kB to a program where this package's libraries add 300 kB.
//
// One goroutine does everything; a second one delivers a list.
package opamp

// Names that agent and server agree on, next to OpenTelemetry's own (service.name,
// service.instance.id, service.version, host.name, os.type).
const (
	ServiceName = "warpgauge"

	// Attributes that describe the agent but do not identify it.
	AttributeGPUs    = "warpgauge.gpus"    // number of GPUs, int
	AttributeModels  = "warpgauge.models"  // array of texts
	AttributeDrivers = "warpgauge.drivers" // array of texts
	LabelPrefix      = "warpgauge.node."   // of --node-label: warpgauge.node.rack = "r7"

	// ConfigName is the key of the field list in AgentConfigMap. A server that knows no
	// keys can use the empty one. The content type is text/csv or application/yaml (text/yaml).
	ConfigName = "field-list"

	// Children of the health component tree. Each collector and each device is a child of
	// its group, by name.
	HealthCollectors = "collectors"
	HealthDevices    = "devices"
	HealthList       = "list"
	// Children of the list's component, each with the value as its status: what runs, also after
	// another list has failed. The revision is the hex of the config_hash that the list came
	// with; there is one only if it came from this server.
	ListHash     = "hash" // SHA-256 of its bytes, hex
	ListOrigin   = "origin"
	ListRevision = "revision"
	ListApplied  = "applied" // Unix time, decimal

	// ReportOnly begins the error message of FAILED if the node compares lists and applies
	// none (--remote-config=report).
	ReportOnly = "not applied (--remote-config=report)"

	// HealthGates has a child for each number that a rollout's gate looks at; its status is
	// the number in decimal.
	HealthGates = "gates"

	GateStalled       = "stalled_devices"
	GateLost          = "lost_devices"
	GateSampleSeconds = "sample_seconds"
	GateMissedTicks   = "missed_ticks"
	GateAbsentFields  = "absent_fields"
	GateSeries        = "series"
)
