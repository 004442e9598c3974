package rocm

import (
	"slices"

	"warpgauge/collectors/rocm/internal/raw"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Supplies says whether some AMD GPU has the field.
func Supplies(d *field.Descriptor) bool {
	whole := raw.GPU{UniqueID: 1, Instances: []raw.Instance{{Units: 1}}}
	specs := slices.Concat(boardSpecs(&whole, node{count: 1}), instanceSpecs(whole.Instances[0]), linkSpecs(0))
	_, text := texts(&whole, collector.Device{}, "")[d.ID]
	return text || slices.ContainsFunc(specs, func(s spec) bool { return s.field == d.ID })
}
