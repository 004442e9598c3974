package sysfs

import (
	"bytes"
	"math"
	"testing"
)

func same(a, b float64) bool {
	return math.Abs(a-b) <= 1e-9*math.Abs(b) || math.IsNaN(a) && math.IsNaN(b)
}

func TestParseNumbers(t *testing.T) {
	f := func(text string, want float64) {
		t.Helper()
		if got := ParseFloat([]byte(text)); !same(got, want) {
			t.Errorf("ParseFloat(%q) = %v, want %v", text, got, want)
		}
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
		if got, good := ParseUint([]byte(text)); good != ok || ok && got != want {
			t.Errorf("ParseUint(%q) = %v, %t", text, got, good)
		}
	}
	u("0x1002\n", 0x1002, true)
	u("0XfF", 255, true)
	u("42", 42, true)
	for _, bad := range []string{"", "0x", "-1", "0xg", "0x12345678901234567", "4 2"} {
		u(bad, 0, false)
	}
}

func TestParseDPM(t *testing.T) {
	f := func(text string, current, highest float64) {
		t.Helper()
		if got := ParseDPM([]byte(text)); !same(got, current) {
			t.Errorf("ParseDPM(%q) = %v, want %v", text, got, current)
		}
		if got := ParseDPMMax([]byte(text)); !same(got, highest) {
			t.Errorf("ParseDPMMax(%q) = %v, want %v", text, got, highest)
		}
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

func TestParseLinkSpeed(t *testing.T) {
	f := func(text string, want float64) {
		t.Helper()
		if got := ParseLinkSpeed([]byte(text)); !same(got, want) {
			t.Errorf("ParseLinkSpeed(%q) = %v, want %v", text, got, want)
		}
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
			if got := errorCount(name)([]byte(text)); !same(got, want) {
				t.Errorf("%s of %q is %v, want %v", name, text, got, want)
			}
		}
	}
	f("ue: 1\nce: 2\n", 1, 2, nan)
	f("ue: 1\nce: 2\nde: 3\n", 1, 2, 3)
	f("ce: 2", nan, 2, nan)
	f("Query currently inaccessible\n", nan, nan, nan)
	f("ue:\nce: x\nde: -1\n", nan, nan, nan)
	f("", nan, nan, nan)
}

func TestParseThroughput(t *testing.T) {
	f := func(text string, sent, received float64, ok bool) {
		t.Helper()
		s, r, good := ParseThroughput([]byte(text))
		if good != ok || ok && (s != sent || r != received) {
			t.Errorf("ParseThroughput(%q) = %v, %v, %t", text, s, r, good)
		}
	}
	f("90000 40000 256\n", 90000*256, 40000*256, true)
	f("0 0 256", 0, 0, true)
	for _, bad := range []string{"", "1 2", "1 2 3 4", "1 2 x", "1,2,3", "1 2 3x", "-1 2 3"} {
		f(bad, 0, 0, false)
	}
}

func TestBadPages(t *testing.T) {
	f := func(text string, last bool, want badPages, used int, ok bool) {
		t.Helper()
		var p badPages
		n, good := p.count([]byte(text), last)
		if p != want || n != used || good != ok {
			t.Errorf("count(%q, %t) = %v, %d, %t", text, last, p, n, good)
		}
	}
	const r, p, x = "0x00001a2b : 0x00001000 : R \n", "0x00001a2c : 0x00001000 : P\n", "0x00001a2d : 0x00001000 : F"
	f(r+p+x, true, badPages{PageRetired: 1, PagePending: 1, PageFailed: 1}, len(r+p+x), true)
	f(r+p+x, false, badPages{PageRetired: 1, PagePending: 1}, len(r+p), true)
	f(r+"0x0000", false, badPages{PageRetired: 1}, len(r), true)
	f("", true, badPages{}, 0, true)
	f(r+"0x0000", true, badPages{PageRetired: 1}, len(r), false) // torn
	f("0x1 : 0x2 : Q\n", true, badPages{}, 0, false)
	f("something else\n", true, badPages{}, 0, false)
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
		for i, v := range []float64{ParseDPM(text), ParseDPMMax(text), ParseLinkSpeed(text), count(text), errorCount("ce:")(text)} {
			if v < 0 || math.IsInf(v, 0) {
				t.Errorf("parser %d of %q: %v", i, text, v)
			}
		}
		if math.IsInf(ParseFloat(text), 0) {
			t.Errorf("ParseFloat(%q) is infinite", text)
		}
		if m, c := ParseDPMMax(text), ParseDPM(text); !math.IsNaN(c) && !(m >= c) {
			t.Errorf("%q: highest %v, present %v", text, m, c)
		}
		if s, r, ok := ParseThroughput(text); ok && (s < 0 || r < 0 || math.IsInf(s, 0) || math.IsInf(r, 0)) {
			t.Errorf("ParseThroughput(%q) = %v, %v", text, s, r)
		}
		for _, last := range []bool{true, false} {
			var p badPages
			if used, _ := p.count(text, last); used > len(text) {
				t.Errorf("count(%q) used %d bytes", text, used)
			}
		}
		findPCI(bytes.NewReader(text), 0x744c, 0)
		findAMDGPU(bytes.NewReader(text), 0x744c, 0xc8)
		properties(string(text))
		parsePCI(string(text))
	})
}

// FuzzPagesInParts checks that a list of pages read in parts gives the same counts as read at once.
func FuzzPagesInParts(f *testing.F) {
	f.Add([]byte("0x00001a2b : 0x00001000 : R \n0x00001a2c : 0x00001000 : P\n0x00001a2d : 0x00001000 : F"), uint8(40))
	f.Fuzz(func(t *testing.T, text []byte, size uint8) {
		var whole, parts badPages
		if _, ok := whole.count(text, true); !ok {
			return
		}
		for at := 0; at < len(text); {
			end := min(at+int(size)+64, len(text))
			used, ok := parts.count(text[at:end], end == len(text))
			if used == 0 && end < len(text) {
				return // a line is longer than a part
			}
			if !ok {
				t.Fatalf("%q fails in parts of %d", text, size)
			}
			at += used
		}
		if whole != parts {
			t.Errorf("%q: %v in parts, %v as a whole", text, parts, whole)
		}
	})
}
