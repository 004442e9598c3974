package view

import (
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Owner is one user of a device.
type Owner struct {
	PodLabels []collector.Label // among the facts; a label with a name in use is left out
	Labels    []collector.Label // after everything else
	// Facts are for dialects only: pod_uid, job_user, job_partition, job_uid, cluster_name, and the pod labels that dialects show.
	Facts []collector.Label
}

// Shares has each user's share of a device's readings, as series next to the device's. It is immutable: a
// changed value needs a new Shares, so the Shares identify the page that was rendered from them.
type Shares struct {
	// Set changes when Series do and is never 0. Shares with the same Set have the same Series and need no new layout.
	Set    uint64
	Series []Share
	Values []float64 // by Series, in the unit of the field's Descriptor; NaN is left out
}

// Share is a series of Shares. The page has it while a source has the device and a metric of the field.
type Share struct {
	Device string   // collector.Device.ID
	Field  field.ID // a reading
	Owner  Owner
}
