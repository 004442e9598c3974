package rows_test

import (
	"fmt"
	"math"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/rows"
)

func TestCodeOf(t *testing.T) {
	for cell, want := range map[float64]int{
		79: 79, 1: 1, math.MaxUint32: math.MaxUint32,
		0: rows.CodeImpossible, -1: rows.CodeImpossible, 1.5: rows.CodeImpossible, math.MaxUint32 + 1: rows.CodeImpossible,
		math.Inf(1): rows.CodeImpossible, math.NaN(): rows.CodeImpossible,
	} {
		testkit.Equal(t, fmt.Sprintf("CodeOf(%v)", cell), want, rows.CodeOf(cell))
	}
}
