package dcgm

import (
	"strings"
	"testing"

	"warpgauge/internal/testkit"
)

var must = testkit.Must

// TestParseAddress checks the addresses that dcgm-exporter's users write.
func TestParseAddress(t *testing.T) {
	f := func(in string, v3 bool, want address) {
		t.Helper()
		got, err := parseAddress(in, v3)
		testkit.ErrorIf(t, err != nil || got != want, "%q (v3 %v): got %+v, %v, want %+v", in, v3, got, err, want)
	}
	tcp := func(text string) address { return address{text: text, far: true} }
	for _, v3 := range []bool{false, true} {
		f("localhost", v3, tcp("localhost:5555"))
		f("localhost:5566", v3, tcp("localhost:5566"))
		f("10.0.0.1", v3, tcp("10.0.0.1:5555"))
		f("dcgm.gpu-operator.svc.cluster.local:5555", v3, tcp("dcgm.gpu-operator.svc.cluster.local:5555"))
		f("::1", v3, tcp("[::1]:5555"))
		f("[::1]", v3, tcp("[::1]:5555"))
		f("[fe80::1]:1234", v3, tcp("[fe80::1]:1234"))
		f("tcp://[::1]:1234", v3, tcp("[::1]:1234"))
		f("TCP://host", v3, tcp("host:5555"))
		f("/run/nvidia/dcgm.sock", v3, address{text: "/run/nvidia/dcgm.sock", unix: true})
		f("unix:///run/nvidia/dcgm.sock", v3, address{text: "/run/nvidia/dcgm.sock", unix: true})
	}
	f("vsock://2:5555", true, address{text: "vsock://2:5555", url: true, far: true})

	bad := func(in string, v3 bool, says string) {
		t.Helper()
		got, err := parseAddress(in, v3)
		testkit.ErrorIf(t, err == nil || !strings.Contains(err.Error(), says), "%q (v3 %v): got %+v, %v, want an error with %q", in, v3, got, err, says)
	}
	bad("", true, "empty")
	bad(":5555", true, "no host")
	bad("host:", true, "not a port")
	bad("host:0", true, "not a port")
	bad("host:65536", true, "not a port")
	bad("host:http", true, "not a port")
	bad("a:b:c", true, "too many colons")
	bad("[::1", true, "missing ']'")
	bad("tcp://", true, "no host")
	bad("unix://relative", true, "a path must follow")
	bad("http://host", true, "know host:port")
	bad("vsock://2:5555", false, "4.5 or newer")
}

// FuzzParseAddress checks that the text of a parsed address parses to the same address.
func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"localhost", "[::1]:5555", "unix:///run/x", "/x", "vsock://2:5555", "tcp://a:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := parseAddress(s, true)
		if err != nil {
			return
		}
		if again, err := parseAddress(a.text, true); err != nil || again != a {
			t.Errorf("%q is %+v, and that is %+v, %v", s, a, again, err)
		}
		testkit.ErrorIf(t, a.far == a.unix || a.url && !a.far, "%q: %+v", s, a)
	})
}
