package main_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
)

// TestE2ETop runs warpctl top in a pseudo-terminal next to a real exporter. cmd/warpctl/top tests the screens.
func TestE2ETop(t *testing.T) {
	t.Parallel()
	e := serve(t, build(t))
	var screen programtest.Output
	cmd := exec.CommandContext(t.Context(), programtest.Find(t, "script"), "--quiet", "--return", "--command", "stty rows 24 cols 80; exec "+buildControl(t)+" top --url="+e.url, "/dev/null")
	cmd.Env = append(cleanEnvironment(), "TERM=xterm", "NO_COLOR=1", "LC_ALL=C.UTF-8")
	cmd.Stdout = &screen
	keys, err := cmd.StdinPipe()
	must(t, errors.Join(err, cmd.Start()))
	press := func(key string, wants ...string) {
		t.Helper()
		testkit.Get(keys.Write([]byte(key)))(t)
		eventually.OK(t, "the screen", func() error {
			for _, want := range wants {
				if !strings.Contains(screen.String(), want) {
					return errors.New("it lacks " + want + ":\n" + screen.String())
				}
			}
			return nil
		})
	}
	press("", "warpctl top", "simulated", "8 GPUs", "UTIL TENSOR", "q quit") // later frames contain only the changes
	press("\r", "GPU 0 is up", "CLOCK", "DCGM_FI_DEV_")
	press("q")
	must(t, cmd.Wait())
}
