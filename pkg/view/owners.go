package view

import (
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Owner is one user of a device.
type Owner struct {
	PodLabels []collector.Label // among the facts; a label whose name is taken is left out
	Labels    []collector.Label // after everything else
	// Facts are for dialects only: pod_uid, job_user, job_partition, cluster_name, and labels of the pod that the
	// owner table was told to keep for them.
	Facts []collector.Label
}

// Shares has each user's share of a device's reading, in series next to the device's.
// It is immutable: a changed value needs a new Shares, so
// the Shares identify the page that was rendered from them.
type Shares struct {
	// Set changes when Series do and is never 0. Shares of one Set have the same
	// Series, so a new one costs no new layout.
	Set    uint64
	Series []Share
	Values []float64 // of Series, in the unit of the field's Descriptor; NaN is left out
}

// Share is a series of Shares. It is on the page where a source with the device
// has a metric of the field, and as long as the device itself is.
type Share struct {
	Device string   // collector.Device.ID
	Field  field.ID // a reading
	Owner  Owner
}
