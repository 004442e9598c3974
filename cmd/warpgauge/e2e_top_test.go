package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
)

// terminal is a terminal of a fixed size that runs a program, in a pane of its own tmux.
type terminal struct {
	tmux, socket string
}

// openTerminal runs a shell command. After its end the screen shows the exit code.
func openTerminal(t *testing.T, width, height int, command string) *terminal {
	t.Helper()
	term := &terminal{programtest.Find(t, "tmux"), filepath.Join(t.TempDir(), "tmux")}
	t.Cleanup(func() { _ = exec.Command(term.tmux, "-S", term.socket, "kill-server").Run() }) // an error means that it has ended
	term.run(t, "-f", "/dev/null", "new-session", "-d", "-x", strconv.Itoa(width), "-y", strconv.Itoa(height), command+"; echo ended with code $?; exec sleep 1000")
	return term
}

func (term *terminal) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(term.tmux, append([]string{"-S", term.socket}, args...)...)
	cmd.Env = append(cleanEnvironment(), "LC_ALL=C.UTF-8", "TERM=xterm")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("tmux %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// await waits until the screen has all texts, and returns it.
func (term *terminal) await(t *testing.T, texts ...string) (screen string) {
	t.Helper()
	eventually.OK(t, "the screen", func() error {
		screen = term.run(t, "capture-pane", "-p")
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return fmt.Errorf("it lacks %q:\n%s", text, screen)
			}
		}
		return nil
	})
	return screen
}

// colors matches the setting of a colour; 39 and 49 are the terminal's defaults.
var colors = regexp.MustCompile(`\x1b\[([0-9;]*;)?(3[0-8]|4[0-8]|9[0-7])[;m]`)

// TestE2ETop runs the binary in a real terminal next to a real exporter.
func TestE2ETop(t *testing.T) {
	t.Parallel()
	exe := build(t)
	e := serve(t, exe, "--fake-spec="+file(t, "spec.yaml", fmt.Sprintf("processes: [{device: 2, pid: %d, memory: 5}]\n", os.Getpid())))
	term := openTerminal(t, 80, 24, "NO_COLOR=1 "+buildControl(t)+" top --interval=250ms --url="+e.url)
	term.await(t, "warpctl top (simulated)", "8 GPUs, ok", "> 0 ", "  7 ", "UTIL TENSOR", "q quit")
	term.run(t, "send-keys", "Down", "Enter")
	term.await(t, "GPU 1 is up", "CLOCK", "FIELD", "DCGM_FI_DEV_")
	term.run(t, "send-keys", "/", "gpu_temp", "Enter")
	term.await(t, "filter: gpu_temp", "DCGM_FI_DEV_GPU_TEMP", "celsius")
	term.run(t, "send-keys", "Escape")
	term.await(t, "DCGM_FI_DEV_SM_CLOCK")
	term.run(t, "send-keys", "Escape")
	term.await(t, "> 1 ")
	term.run(t, "send-keys", "p")
	term.await(t, "> 2 ", fmt.Sprint(" ", os.Getpid(), " "))
	term.run(t, "send-keys", "Escape")
	term.await(t, "UTIL TENSOR")

	term.run(t, "resize-window", "-x", "40", "-y", "12")
	eventually.OK(t, "a small screen", func() error {
		lines := strings.Split(strings.TrimRight(term.run(t, "capture-pane", "-p"), "\n"), "\n")
		for _, l := range lines {
			if ansi.StringWidth(l) > 40 {
				return fmt.Errorf("line %q", l)
			}
		}
		if len(lines) != 12 || !strings.HasPrefix(lines[11], "q quit") {
			return fmt.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
		}
		return nil
	})

	openTerminal(t, 150, 60, "TERM=dumb "+buildControl(t)+" top --url="+e.url).await(t, "UTIL  TENSOR", "ended with code 0")

	e.Signal(t, syscall.SIGKILL)
	term.await(t, "has not answered since", "silent ")
	if screen := term.run(t, "capture-pane", "-p", "-e"); colors.MatchString(screen) {
		t.Errorf("colours, although NO_COLOR is set: %q", screen)
	}
	term.run(t, "send-keys", "q")
	term.await(t, "ended with code 0")
}
