package nvml

import (
	"slices"

	"warpgauge/pkg/field"
)

// Supplies says whether NVML has the field, for some GPU and driver.
func Supplies(d *field.Descriptor) bool {
	if d.Kind == field.String {
		return slices.Contains(textFacts(), d.ID)
	}
	return (d.Kind == field.Int64 || d.Kind == field.Double) && d.Factor == 0 && missing(d) == ""
}
