package dcgm

import (
	"warpgauge/pkg/field"
)

// Supply is how the collector supplies a field.
type Supply int

const (
	NotSupplied Supply = iota
	AsReading          // a number that the engine reads of some kind of entity
	AsLabel            // a text that is a label
	AsPart             // events, health, peers: not one number of the engine
)

// SupplyOf says how the collector supplies a field. A name in base units is the same
// reading as the field that it is derived from, and is not listed here.
func SupplyOf(d *field.Descriptor) Supply {
	switch d.ID {
	case field.XIDErrorsCount, field.XIDErrorsTotal, field.ClockEventsCount, field.ClockEventsTotal, field.GPUHealth, field.P2PStatus:
		return AsPart
	}
	if d.Factor != 0 || d.ID >= field.FirstExporter {
		return NotSupplied
	}
	if d.Kind == field.String && d.Level != field.VGPU {
		return AsLabel
	}
	for k := kindGPU; askable(d) && k <= kindConnectX; k++ {
		if askedOf(d, k) {
			return AsReading
		}
	}
	return NotSupplied
}

// Supplies reports whether DCGM has the field, for some entity.
func Supplies(d *field.Descriptor) bool { return SupplyOf(d) != NotSupplied }

// Levels are those of fields that an entity of a kind is asked for. Kinds have
// DCGM's names: "GPU", "GPU instance", "link".
func Levels(kind string) (out []field.Level) {
	for k := kindGPU; k <= kindConnectX; k++ {
		for l := field.Global; k.String() == kind && l <= field.ConnectX; l++ {
			if serves(l, k) {
				out = append(out, l)
			}
		}
	}
	return out
}
