// Package opamp is the OpAMP agent: it tells a server what this node is and how it is, and
// takes field lists from it. The server can do nothing else.
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
