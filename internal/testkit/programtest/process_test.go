package programtest

import (
	"errors"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/failing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sh(tb testing.TB, script string) *Process {
	return Start(tb, "sh", []string{"-c", script}, Options{})
}

func TestEndsWithTheTest(t *testing.T) {
	var p *Process
	r := failing.Run(t, func(tb testing.TB) { p = sh(tb, "echo out; echo err >&2; exec sleep 1000") })
	eventually.True(t, "the output", func() bool { return p.Output() == "out\nerr\n" })
	if err := syscall.Kill(p.PID(), 0); err != nil {
		t.Errorf("process %d while the test runs: %v", p.PID(), err)
	}
	r.End()
	<-p.Ended()
	if err := syscall.Kill(p.PID(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d after the test: %v, want none", p.PID(), err)
	}
	if r.Message != "" || r.Logged != "" {
		t.Errorf("failed %q, logged %q", r.Message, r.Logged)
	}
}

func TestEndsBefore(t *testing.T) {
	r := failing.Run(t, func(tb testing.TB) {
		sh(tb, "echo no such file; exit 7").Await(tb, "the port", func() error { return errors.New("none") })
	})
	r.End()
	if want := "the port: sh has ended (exit status 7), its output:\nno such file\n"; r.Message != want {
		t.Errorf("failed %q, want %q", r.Message, want)
	}
	if want := "output of sh [\"-c\" \"echo no such file; exit 7\"]:\nno such file\n"; r.Logged != want {
		t.Errorf("logged %q, want %q", r.Logged, want)
	}
}

// A test of what this machine lacks is skipped, in one line, or fails with all that was written.
func TestMissing(t *testing.T) {
	for _, c := range []struct{ required, skipped, failed string }{
		{"prometheus", "needs a cluster: no right; to mount", ""},
		{"prometheus,a cluster", "", "a cluster is required by WARPGAUGE_REQUIRE but missing: no right\r\nto mount\n"},
	} {
		t.Setenv("WARPGAUGE_REQUIRE", c.required)
		if r := failing.Run(t, func(tb testing.TB) { Missing(tb, "a cluster", "no right\r\nto mount\n") }); r.Reason != c.skipped || r.Message != c.failed {
			t.Errorf("required %q: skipped %q, failed %q", c.required, r.Reason, r.Message)
		}
	}
}
