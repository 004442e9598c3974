package extension

import (
	"fmt"
	"strings"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/config/configtest"
)

func TestRecorderAndHistory(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		_, _, err := configtest.Parse(t, nil, []configtest.Flags{New()}, args...)
		got := fmt.Sprint(err)
		testkit.ErrorIf(t, want == "" && err != nil || !strings.Contains(got, want), "%q: %v, want %q", args, err, want)
	}
	f("", "--recorder-directory=/r", "--recorder-before=10m", "--recorder-after=4m")
	f("", "--recorder-directory=/r", "--history-age=0")
	f("", "--recorder-directory=r", "--history-bytes=0")
	f("", "--recorder-before=10h") // of no use
	f("write an absolute path", "--recorder-directory=r")
	f("--history-age must be at least 1m40s", "--recorder-directory=/r", "--history-age=1m")
	f("they can be at most 1h", "--recorder-directory=/r", "--history-age=3h", "--recorder-after=1h")
	f("--recorder-files is 0", "--recorder-directory=/r", "--recorder-files=0")
	f("--recorder-bytes is 1KiB", "--recorder-directory=/r", "--recorder-bytes=1KiB")
	f("--recorder-before is 0s", "--recorder-directory=/r", "--recorder-before=0")
	f("--history-age is 10ms", "--history-age=10ms")
	f("--history-bytes is 1KiB: it must be at least 1MiB", "--history-bytes=1KiB")
}
