package programtest

import (
	"fmt"
	"runtime"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ended records how a test ended.
type ended struct {
	testing.TB
	skipped, failed string
}

func (*ended) Helper() {}

func (e *ended) Skipf(format string, args ...any) {
	e.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (e *ended) Fatalf(format string, args ...any) {
	e.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// TestMissing checks that a test that needs a missing program is skipped in one line or, if required, fails.
func TestMissing(t *testing.T) {
	for _, c := range []struct{ required, skipped, failed string }{
		{"prometheus", "needs a cluster: no right; to mount", ""},
		{"prometheus,a cluster", "", "a cluster is required by WARPGAUGE_REQUIRE but missing: no right\r\nto mount\n"},
	} {
		t.Setenv("WARPGAUGE_REQUIRE", c.required)
		e, done := &ended{}, make(chan struct{})
		go func() {
			defer close(done)
			Missing(e, "a cluster", "no right\r\nto mount\n")
		}()
		if <-done; e.skipped != c.skipped || e.failed != c.failed {
			t.Errorf("required %q: skipped %q, failed %q", c.required, e.skipped, e.failed)
		}
	}
}
