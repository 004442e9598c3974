// Package opamp is the OpAMP agent. It reports this node's identity and state to a server and
// receives field lists. It ignores everything else a server can send, without decoding it:
// packages, connection settings, restart commands, custom messages and own-telemetry settings.
//
// The client of opamp-go v0.23.0 reads answers of any length without a time limit, and neither backs off nor keeps its report
// after HTTP status 500. So this package has its own.
//
// One goroutine does all the work, except that a second one delivers a list.
package opamp

// Names that agent and server share, in addition to OpenTelemetry's.
const (
	ServiceName = "warpgauge"

	// Attributes that describe the agent but do not identify it.
	AttributeGPUs    = "warpgauge.gpus"    // number of GPUs, int
	AttributeModels  = "warpgauge.models"  // array of texts
	AttributeDrivers = "warpgauge.drivers" // array of texts
	LabelPrefix      = "warpgauge.node."   // of --node-label: warpgauge.node.rack = "r7"

	// ConfigName is the key of the field list in AgentConfigMap; the empty key also works. The content
	// type is text/csv or application/yaml (text/yaml). A map without files withdraws the server's list.
	ConfigName = "field-list"

	// Children of the health component tree. Each collector and each device is a child of its group, by name.
	HealthCollectors = "collectors"
	HealthDevices    = "devices"
	HealthList       = "list"
	// Children of the list component; the status is the value. They describe the running list, also after another list failed.
	// The revision is the hex config_hash that came with the list; only lists from this server have one.
	ListHash     = "hash" // SHA-256 of its bytes, hex
	ListOrigin   = "origin"
	ListRevision = "revision"
	ListApplied  = "applied" // Unix time, decimal

	// ReportOnly begins the error message of FAILED if the node compares lists and applies none (--remote-config=report).
	ReportOnly = "not applied (--remote-config=report)"

	// HealthGates has a child for each gate; its status is the gate's number in decimal.
	HealthGates       = "gates"
	GateStalled       = "stalled_devices"
	GateLost          = "lost_devices"
	GateSampleSeconds = "sample_seconds"
	GateMissedTicks   = "missed_ticks"
	GateAbsentFields  = "absent_fields"
	GateSeries        = "series"
)
