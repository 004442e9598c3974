package eventually

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/internal/testkit/failing"
)

func TestGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, n := time.Now(), 0
		ends := func(looks int) func(testing.TB) {
			return func(tb testing.TB) {
				OK(tb, "a pod", func() error {
					if n++; n == looks {
						return nil
					}
					return fmt.Errorf("look %d", n)
				})
			}
		}
		if r := failing.Run(t, ends(3)); r.Message != "" || n != 3 || time.Since(begin) != 2*further {
			t.Errorf("failed %q after %d looks and %v", r.Message, n, time.Since(begin))
		}
		begin = time.Now()
		if r := failing.Run(t, ends(0)); !strings.HasPrefix(r.Message, fmt.Sprintf("a pod: not within 1m0s: look %d", n)) || time.Since(begin) < Patience {
			t.Errorf("failed %q after %v", r.Message, time.Since(begin))
		}
		if r := failing.Run(t, func(tb testing.TB) { True(tb, "a pod", func() bool { return false }) }); r.Message != "a pod: not within 1m0s" {
			t.Errorf("failed %q", r.Message)
		}
	})
}
