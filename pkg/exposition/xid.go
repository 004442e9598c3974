package exposition

import (
	"math"

	"warpgauge/pkg/field"
)

// xidText says what an XID means, for label err_msg. It allocates nothing.
func xidText(code float64) string {
	if math.Abs(code) > math.MaxInt32 {
		code = -1
	}
	return field.XIDText(int(code))
}
