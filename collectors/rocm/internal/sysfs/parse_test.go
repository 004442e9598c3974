package sysfs

import (
	"math"
	"testing"

	"warpgauge/internal/testkit"
)

func same(a, b float64) bool {
	return math.Abs(a-b) <= 1e-9*math.Abs(b) || math.IsNaN(a) && math.IsNaN(b)
}

func TestNumbers(t *testing.T) {
	f := func(text string, want float64) {
		t.Helper()
		got := signed([]byte(text))
		testkit.ErrorIf(t, !same(got, want), "signed(%q) = %v, want %v", text, got, want)
	}
	f("0", 0)
	f(" 45000\n", 45000)
	f("-273150\n\n", -273150)
	f("18446744073709551615", math.MaxUint64)
	for _, bad := range []string{"", "-", "+1", "1 2", "12x", "0x10", "1.5", "18446744073709551616", "99999999999999999999999", "N/A", "\x001"} {
		if bad != "\x001" { // a zero byte at an end counts as white space
			f(bad, nan)
		}
	}
	u := func(text string, want uint64, ok bool) {
		t.Helper()
		got, good := parseUint([]byte(text))
		testkit.ErrorIf(t, good != ok || ok && got != want, "parseUint(%q) = %v, %t", text, got, good)
	}
	u("0x1002\n", 0x1002, true)
	u("0XfF", 255, true)
	u("42", 42, true)
	for _, bad := range []string{"", "0x", "-1", "0xg", "0x12345678901234567", "4 2"} {
		u(bad, 0, false)
	}
}

func TestDPM(t *testing.T) {
	f := func(text string, current, highest float64) {
		t.Helper()
		got := dpmCurrent([]byte(text))
		testkit.ErrorIf(t, !same(got, current), "dpmCurrent(%q) = %v, want %v", text, got, current)
		got = dpmHighest([]byte(text))
		testkit.ErrorIf(t, !same(got, highest), "dpmHighest(%q) = %v, want %v", text, got, highest)
	}
	f("0: 500Mhz \n1: 1700Mhz *\n", 1700, 1700)
	f("0: 500Mhz *\n1: 1700Mhz\n", 500, 1700)
	f("S: 19Mhz *\n0: 615Mhz\n1: 800Mhz\n2: 1000Mhz", 19, 1000) // deep sleep
	f("0: 2.1GHz *\n", 2100, 2100)
	f("0: 96000KHz *\n", 96, 96)
	f("0: 500Mhz\n1: 900Mhz\n", nan, 900) // no level is marked
	f("", nan, nan)
	f("*\n", nan, nan)
	f("0: *\n1: 900Mhz\n", nan, 900)
	f("0: 2.5GT/s, x1\n1: 16.0GT/s, x16 *", nan, nan)
	f("1: 17", nan, nan) // torn
	f("0: 500Mhz *\n1: 17", 500, 500)
}

func TestLinkSpeed(t *testing.T) {
	f := func(text string, want float64) {
		t.Helper()
		got := linkSpeed([]byte(text))
		testkit.ErrorIf(t, !same(got, want), "linkSpeed(%q) = %v, want %v", text, got, want)
	}
	f("2.5 GT/s PCIe\n", 2.5)
	f("16.0 GT/s PCIe", 16)
	f("8 GT/s", 8)
	f("Unknown speed", nan)
	f("Unknown", nan)
	f("16.0", nan)
	f("", nan)
	f("16.", nan)
}

func TestErrorCount(t *testing.T) {
	f := func(text string, ue, ce, de float64) {
		t.Helper()
		for name, want := range map[string]float64{"ue:": ue, "ce:": ce, "de:": de} {
			got := errorCount(name)([]byte(text))
			testkit.ErrorIf(t, !same(got, want), "%s of %q is %v, want %v", name, text, got, want)
		}
	}
	f("ue: 1\nce: 2\n", 1, 2, nan)
	f("ue: 1\nce: 2\nde: 3\n", 1, 2, 3)
	f("ce: 2", nan, 2, nan)
	f("Query currently inaccessible\n", nan, nan, nan)
	f("ue:\nce: x\nde: -1\n", nan, nan, nan)
	f("", nan, nan, nan)
}

func TestThroughput(t *testing.T) {
	f := func(text string, sent, received float64, ok bool) {
		t.Helper()
		s, r, good := throughput([]byte(text))
		testkit.ErrorIf(t, good != ok || ok && (s != sent || r != received), "throughput(%q) = %v, %v, %t", text, s, r, good)
	}
	f("90000 40000 256\n", 90000*256, 40000*256, true)
	f("0 0 256", 0, 0, true)
	for _, bad := range []string{"", "1 2", "1 2 3 4", "1 2 x", "1,2,3", "1 2 3x", "-1 2 3"} {
		f(bad, 0, 0, false)
	}
}

func TestBadPages(t *testing.T) {
	f := func(text string, want ...float64) {
		t.Helper()
		for state := range Pages {
			if got := badPages(state)([]byte(text)); !same(got, want[state]) {
				t.Errorf("state %c of %q: %v, want %v", pageStates[state], text, got, want[state])
			}
		}
	}
	const r, p, x = "0x00001a2b : 0x00001000 : R \n", "0x00001a2c : 0x00001000 : P\n", "0x00001a2d : 0x00001000 : F"
	f(r+p+r+x, 2, 1, 1)
	f("\n \n", 0, 0, 0)
	f(r+"0x0000", nan, nan, nan) // torn
	f("0x1 : 0x2 : Q\n", nan, nan, nan)
	f("something else\n", nan, nan, nan)
}

// FuzzText checks that no text makes a parser panic or return an invalid number.
func FuzzText(f *testing.F) {
	for _, s := range []string{
		"45000\n", "-1", "0x10", "S: 19Mhz *\n0: 615Mhz\n", "1: 1700Mhz *\n2: 2.1GHz", "16.0 GT/s PCIe", "ue: 1\nce: 2\nde: 3\n",
		"Query currently inaccessible\n", "0x00001a2b : 0x00001000 : R \n", "90000 40000 256", "cpu_cores_count 0\nsimd_count 440\n", "\x00*:", "0000:41:00.0", "1.",
		"1002  AMD\n\t744c  Navi 31\n", "744C,\tC8,\tAMD Radeon RX 7900 XTX\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for i, v := range []float64{dpmCurrent(text), dpmHighest(text), linkSpeed(text), count(text), errorCount("ce:")(text), badPages(PageFailed)(text)} {
			testkit.ErrorIf(t, v < 0 || math.IsInf(v, 0), "parser %d of %q: %v", i, text, v)
		}
		testkit.ErrorIf(t, math.IsInf(signed(text), 0), "signed(%q) is infinite", text)
		m, c := dpmHighest(text), dpmCurrent(text)
		testkit.ErrorIf(t, !math.IsNaN(c) && !(m >= c), "%q: highest %v, present %v", text, m, c)
		s, r, ok := throughput(text)
		testkit.ErrorIf(t, ok && (s < 0 || r < 0 || math.IsInf(s, 0) || math.IsInf(r, 0)), "throughput(%q) = %v, %v", text, s, r)
		findAMDGPU(string(text), 0x744c, 0xc8)
		properties(string(text))
		parsePCI(string(text))
	})
}
