package exposition

import (
	"math"
	"strconv"
	"testing"
)

func TestAppendValue(t *testing.T) {
	f := func(in float64, want string) {
		t.Helper()
		if got := string(appendValue(nil, in)); got != want {
			t.Errorf("got %s for %v, want %s", got, in, want)
		}
	}
	f(0, "0")
	f(math.Copysign(0, -1), "0")
	f(41, "41")
	f(-7, "-7")
	f(1<<53, "9007199254740992")
	f(1<<62, "4611686018427387904")
	f(-1<<63, "-9223372036854776000") // too big for an int64 without its sign
	f(1e18, "1000000000000000000")
	f(1e30, "1e+30")
	f(0.5, "0.5")
	f(-0.1, "-0.1")
	f(0.25, "0.25")
	f(0.125, "0.125")
	f(0.0625, "0.0625")
	f(99.999, "99.999")
	f(100.01, "100.01")
	f(123456789.001, "123456789.001")
	f(999999999999.999, "999999999999.999") // 15 digits, the last that the short way takes
	f(9999999999999.999, "9999999999999.998")
	f(1e-6, "0.000001")
	f(9e-7, "9e-07")
	f(math.SmallestNonzeroFloat64, "5e-324")
	f(math.MaxFloat64, "1.7976931348623157e+308")
	f(math.Inf(1), "+Inf")
	f(math.Inf(-1), "-Inf")
	f(math.NaN(), "NaN")
}

// FuzzValue: what is written reads back as the same float64 and has no digit
// more than needed.
func FuzzValue(f *testing.F) {
	for _, v := range []float64{0, 1, -1, 0.1, 0.001, 1.0005, 12.3456, 1e15 + 0.5, 1e-300, 1 << 60} {
		f.Add(v)
		f.Add(v / 1000)
		f.Add(-v / 3)
	}
	f.Fuzz(func(t *testing.T, v float64) {
		text := string(appendValue(nil, v))
		back, err := strconv.ParseFloat(text, 64)
		if err != nil || back != v && (back == back || v == v) {
			t.Fatalf("%v became %s, which is %v (%v)", v, text, back, err)
		}
		if v-v != 0 || v == math.Trunc(v) {
			return
		}
		if shortest := digits(strconv.FormatFloat(v, 'e', -1, 64)); digits(text) != shortest {
			t.Fatalf("%s has %d digits, %d would do", text, digits(text), shortest)
		}
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

func TestBounds(t *testing.T) {
	f := func(in float64, text, open string) {
		t.Helper()
		if got := string(appendBound(nil, in)); got != text {
			t.Errorf("got %s for %v in text, want %s", got, in, text)
		}
		if got := string(appendCanonicalBound(nil, in)); got != open {
			t.Errorf("got %s for %v in OpenMetrics, want %s", got, in, open)
		}
	}
	f(1, "1", "1.0")
	f(0, "0", "0.0")
	f(-5, "-5", "-5.0")
	f(0.25, "0.25", "0.25")
	f(1e6, "1e+06", "1e+06")
	f(1e-9, "1e-09", "1e-09")
	f(math.Inf(1), "+Inf", "+Inf")
}
