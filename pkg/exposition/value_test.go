package exposition

import (
	"math"
	"strconv"
	"testing"

	"warpgauge/internal/testkit"
)

// FuzzValue: a written value reads back as the same float64 and has no unnecessary digit.
func FuzzValue(f *testing.F) {
	for _, v := range []float64{0, 1, -1, 0.1, 0.001, 1.0005, 12.3456, 1e15 + 0.5, 1e-300, 1 << 60, 1 << 62, -1 << 63, 1e18, 1e30, 999999999999.999, 9999999999999.999, 5e-324, math.MaxFloat64} {
		f.Add(v)
		f.Add(v / 1000)
		f.Add(-v / 3)
	}
	f.Fuzz(func(t *testing.T, v float64) {
		text := string(appendValue(nil, v))
		back, err := strconv.ParseFloat(text, 64)
		testkit.FatalIf(t, err != nil || back != v && (back == back || v == v), "%v became %s, which is %v (%v)", v, text, back, err)
		if v-v != 0 || v == math.Trunc(v) {
			return
		}
		testkit.Equal(t, "digits of "+text, digits(strconv.FormatFloat(v, 'e', -1, 64)), digits(text))
	})
}

// digits counts significant digits.
func digits(text string) (n int) {
	leading := true
	for _, c := range text {
		switch {
		case c == 'e':
			return n
		case c == '0' && leading:
		case c >= '0' && c <= '9':
			leading = false
			n++
		}
	}
	return n
}
