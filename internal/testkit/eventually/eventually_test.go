package eventually

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/internal/testkit/failing"
)

func run(t *testing.T, f func(testing.TB)) (message string, took time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		message, took = failing.Run(t, f).Message, time.Since(begin)
	})
	return message, took
}

func TestWaits(t *testing.T) {
	for n := range 5 {
		looks := 0
		failed, took := run(t, func(tb testing.TB) { True(tb, "it", func() bool { looks++; return looks > n }) })
		if failed != "" || looks != n+1 || took != time.Duration(n)*pause {
			t.Errorf("True: %q after %d looks and %v, want %d and %v", failed, looks, took, n+1, time.Duration(n)*pause)
		}
		looks = 0
		failed, took = run(t, func(tb testing.TB) {
			OK(tb, "it", func() error {
				if looks++; looks > n {
					return nil
				}
				return errors.New("none yet")
			})
		})
		if failed != "" || looks != n+1 || took != time.Duration(n)*further {
			t.Errorf("OK: %q after %d looks and %v, want %d and %v", failed, looks, took, n+1, time.Duration(n)*further)
		}
	}
}

func TestGivesUp(t *testing.T) {
	failed, took := run(t, func(tb testing.TB) { True(tb, "a pod", func() bool { return false }) })
	if failed != "a pod: not within 1m0s" || took < Patience {
		t.Errorf("True: %q after %v", failed, took)
	}
	n := 0
	failed, took = run(t, func(tb testing.TB) { OK(tb, "a pod", func() error { n++; return fmt.Errorf("look %d", n) }) })
	if !strings.HasPrefix(failed, "a pod: not within 1m0s: look ") || !strings.HasSuffix(failed, fmt.Sprint(n)) || took < Patience {
		t.Errorf("OK: %q after %v, want the last error, look %d", failed, took, n)
	}
}
