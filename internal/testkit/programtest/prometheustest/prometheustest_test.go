package prometheustest

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"warpgauge/internal/testkit/failing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fails returns the message with which f fails a test.
func fails(t *testing.T, f func(testing.TB)) string {
	t.Helper()
	return failing.Run(t, f).Message
}

func TestQueries(t *testing.T) {
	s := Start(t, "")
	if v := s.Query(t, `label_replace(vector(3), "gpu", "7", "", "")`); len(v) != 1 || v[0].Value != 3 || v[0].Metric["gpu"] != "7" {
		t.Errorf("query: %v", v)
	}
	if v := s.Query(t, `vector(3) > 4`); len(v) != 0 {
		t.Errorf("nothing: %v", v)
	}
	if v := s.Value(t, `vector(3)`); v != 3 {
		t.Errorf("value: %v", v)
	}
	s.Await(t, "a number", 1, `vector(3)`)
	s.Await(t, "none", 0, `up`)
	s.AwaitValue(t, "a number", 3, `vector(3)`)
	// It changes while it is waited for.
	now := s.Value(t, `vector(time())`)
	s.Await(t, "two seconds later", 1, fmt.Sprintf(`vector(time()) > %f`, now+2))

	f := func(want string, f func(testing.TB)) {
		t.Helper()
		if got := fails(t, f); !strings.Contains(got, want) {
			t.Errorf("failed %q, want %q", got, want)
		}
	}
	const bad = "query up{: bad_data: invalid parameter"
	f(bad, func(tb testing.TB) { s.Query(tb, `up{`) })
	f(bad, func(tb testing.TB) { s.Value(tb, `up{`) })
	f("GPUs: "+bad, func(tb testing.TB) { s.Await(tb, "GPUs", 1, `up{`) })
	f("GPUs: "+bad, func(tb testing.TB) { s.AwaitValue(tb, "GPUs", 1, `up{`) })
	f("query 3: a scalar, want a vector", func(tb testing.TB) { s.Query(tb, `3`) })
	f("query up: 0 results, want one number: ", func(tb testing.TB) { s.Value(tb, `up`) })
}

// What it cannot run by is told at once, in its words.
func TestBadConfiguration(t *testing.T) {
	Find(t)
	got := fails(t, func(tb testing.TB) { Start(tb, "scrape_configs: [{}]") })
	for _, want := range []string{"prometheus to be ready: prometheus has ended (exit status 2), its output:\n", "job_name is empty"} {
		if !strings.Contains(got, want) {
			t.Errorf("failed %q, want %q", got, want)
		}
	}
	if got := fails(t, func(tb testing.TB) { Start(tb, "", "--no-such-flag") }); !strings.Contains(got, "unknown long flag") {
		t.Errorf("failed %q", got)
	}
}

func TestEndsMeanwhile(t *testing.T) {
	s := Start(t, "")
	got := fails(t, func(tb testing.TB) {
		s.await(tb, "GPUs", func(ctx context.Context) error {
			s.Process.Signal(tb, syscall.SIGTERM)
			s.Process.ExitCode(tb)
			_, err := s.query(ctx, `up`)
			return err
		})
	})
	if !strings.HasPrefix(got, "GPUs: prometheus has ended (exit status 0), its output:\n") {
		t.Errorf("failed %q", got)
	}
}
