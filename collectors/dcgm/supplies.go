package dcgm

import "warpgauge/pkg/field"

// Supplies reports whether the collector supplies a field for some entity. It returns false for a name in base units,
// which is derived from another field.
func Supplies(d *field.Descriptor) bool { return isPart(d) || isLabel(d) || isReading(d) }

// isPart reports whether a field consists of events, health or peers rather than one number of the engine.
func isPart(d *field.Descriptor) bool {
	switch d.ID {
	case field.XIDErrorsCount, field.XIDErrorsTotal, field.ClockEventsCount, field.ClockEventsTotal, field.GPUHealth, field.P2PStatus:
		return true
	}
	return false
}

// isLabel reports whether a field is a text, used as a label.
func isLabel(d *field.Descriptor) bool {
	return d.Kind == field.String && d.Level != field.VGPU && d.Factor == 0 && d.ID < field.FirstExporter
}

// isReading reports whether a field is a number that the engine reads for some kind of entity.
func isReading(d *field.Descriptor) bool {
	if d.Factor != 0 || d.ID >= field.FirstExporter || isLabel(d) || !askable(d) {
		return false
	}
	for k := kindGPU; k <= kindConnectX; k++ {
		if askedOf(d, k) {
			return true
		}
	}
	return false
}
