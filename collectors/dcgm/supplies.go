package dcgm

import (
	"slices"

	"warpgauge/pkg/field"
)

// Supplies says whether DCGM has the field, for some entity.
func Supplies(d *field.Descriptor) bool {
	return served(d) || labelled(d) || slices.ContainsFunc(docsOtherFields(), func(o docsOther) bool { return o.id == d.ID })
}
