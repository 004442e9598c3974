package exposition

import "warpgauge/pkg/collector"

// Owners says who uses a device. The owner table (pods, jobs) satisfies it; its
// answers come from an immutable table, so they never block.
type Owners interface {
	// Version changes whenever any answer of Owners changes.
	Version() uint64
	// Owners returns the users of a device by its ID. Each becomes a copy of
	// the device's series with these labels added; none means one series
	// without them.
	Owners(deviceID string) []Owner
}

// Owner is one user of a device.
type Owner struct{ Labels []collector.Label }
