package main_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
)

var must = testkit.Must

// goBuild returns a function that compiles a program once for all tests.
func goBuild(name, directory string, variables ...string) func() (exe string, err error) {
	return sync.OnceValues(func() (exe string, err error) {
		exe = filepath.Join(os.Getenv("WARPGAUGE_TEST_DIR"), name) // created by TestMain
		args := []string{"build", "-o", exe}
		if testkit.Race && name == "warpgauge" {
			args = append(args, "-race")
		}
		cmd := exec.Command("go", append(args, directory)...)
		cmd.Env = append(variables, os.Environ()...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
		return exe, nil
	})
}

var (
	built   = goBuild("warpgauge", ".", "CGO_CFLAGS=-g -O2 -Wno-deprecated-declarations")
	control = goBuild("warpctl", "../warpctl", "CGO_ENABLED=0")
)

// build returns the binary, with the race detector if the tests have it.
func build(t *testing.T) string {
	t.Helper()
	exe := testkit.Get(built())(t)
	return exe
}

// buildControl returns warpctl in its release form.
func buildControl(t *testing.T) string {
	t.Helper()
	exe := testkit.Get(control())(t)
	return exe
}

// launch runs a program until the test ends.
func launch(t *testing.T, exe string, args ...string) *programtest.Process {
	t.Helper()
	return programtest.Start(t, exe, args, programtest.Options{Env: cleanEnvironment()})
}

// cleanEnvironment removes variables that would change flags.
func cleanEnvironment() []string {
	prefixes := []string{"DCGM_", "WARPGAUGE_", "NODE_NAME=", "KUBERNETES_", "NVIDIA_"}
	return append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(v, prefix) })
	}), "WARPGAUGE_EXPORTER_METRICS=full")
}

// exporter is a running warpgauge.
type exporter struct {
	*programtest.Process
	url string // without a path
}

var servingLine = regexp.MustCompile(`serving (https?://127\.0\.0\.1:\d+)`)

// serve starts warpgauge on a free loopback port with simulated GPUs only.
func serve(t *testing.T, exe string, args ...string) *exporter {
	t.Helper()
	return serveBy(t, []string{exe}, args...)
}

// serveBy is serve with a command that runs warpgauge, such as env.
func serveBy(t *testing.T, command []string, args ...string) *exporter {
	t.Helper()
	return serving(t, slices.Concat(command, []string{"--address=127.0.0.1:0", "--enable-only=fake"}, args)...)
}

// serving starts a command and waits until its log has the address.
func serving(t *testing.T, command ...string) *exporter {
	t.Helper()
	e := &exporter{Process: launch(t, command[0], command[1:]...)}
	e.Await(t, "the address in the log", func() error {
		m := servingLine.FindStringSubmatch(e.Output())
		if m == nil {
			return errors.New("not there yet")
		}
		e.url = m[1]
		return nil
	})
	return e
}

// awaitLog waits until the log has a text.
func (e *exporter) awaitLog(t *testing.T, text string) {
	t.Helper()
	e.Await(t, fmt.Sprintf("%q in the log", text), func() error {
		if !strings.Contains(e.Output(), text) {
			return errors.New("not yet")
		}
		return nil
	})
}

// ends sends a signal and expects a clean exit.
func (e *exporter) ends(t *testing.T, s os.Signal) {
	t.Helper()
	e.Signal(t, s)
	testkit.Equal(t, fmt.Sprintf("exit code after %v", s), 0, e.ExitCode(t))
}

// runToEnd runs a command until it exits.
func runToEnd(t *testing.T, exe string, args ...string) (code int, output string) {
	t.Helper()
	p := launch(t, exe, args...)
	return p.ExitCode(t), p.Output()
}

// file writes a file into a temporary directory.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	write(t, path, text)
	return path
}

// write replaces a file like an editor: it writes a new file and renames it.
func write(t *testing.T, path, text string) {
	t.Helper()
	next := fmt.Sprintf("%s.%d", path, time.Now().UnixNano())
	must(t, os.WriteFile(next, []byte(text), 0o600))
	must(t, os.Rename(next, path))
}

// configMap lays a file out like the kubelet's ConfigMap volume: NAME -> ..data/NAME, ..data ->
// ..<time>. It replaces existing text by the kubelet's swap of links.
func configMap(t *testing.T, dir, name, text string) {
	t.Helper()
	data := filepath.Join(dir, "..data")
	old, err := os.Readlink(data)
	if err != nil {
		must(t, os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)))
	}
	fresh := filepath.Join(dir, fmt.Sprintf("..%d", time.Now().UnixNano()))
	must(t, os.Mkdir(fresh, 0o755))
	must(t, os.WriteFile(filepath.Join(fresh, name), []byte(text), 0o644))
	must(t, os.Symlink(filepath.Base(fresh), data+"_tmp"))
	must(t, os.Rename(data+"_tmp", data))
	if old != "" {
		must(t, os.RemoveAll(filepath.Join(dir, old)))
	}
}

// procFile reads a file of a process in /proc.
func procFile(t *testing.T, pid int, name string) string {
	t.Helper()
	b := testkit.Get(os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name)))(t)
	return string(b)
}

// mebibytes returns a line of /proc/PID/status, such as VmRSS.
func mebibytes(t *testing.T, pid int, key string) (n int) {
	t.Helper()
	_, after, _ := strings.Cut(procFile(t, pid, "status"), key+":")
	testkit.Get(fmt.Sscan(after, &n))(t)
	return n >> 10
}

// children returns the pids of the exporter's children, zombies included.
func (e *exporter) children(t *testing.T) (pids []int) {
	t.Helper()
	tasks := testkit.Get(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", e.PID())))(t)
	for _, path := range tasks {
		text, _ := os.ReadFile(path) // an ended thread has none
		for f := range strings.FieldsSeq(string(text)) {
			var pid int
			testkit.Get(fmt.Sscan(f, &pid))(t)
			pids = append(pids, pid)
		}
	}
	return pids
}

// holds reports whether the exporter or a child of it has a file below dir open.
func (e *exporter) holds(t *testing.T, dir string) (held []string) {
	t.Helper()
	for _, pid := range append(e.children(t), e.PID()) {
		for _, f := range programtest.OpenFiles(pid) {
			if strings.HasPrefix(f, dir) {
				held = append(held, fmt.Sprintf("%d: %s", pid, f))
			}
		}
	}
	return held
}

// held counts resources that the exporter could leak.
type held struct{ goroutines, descriptors int }

// holding returns the current counts. The page's number of goroutines is at most a second old.
func (e *exporter) holding(t *testing.T) held {
	t.Helper()
	n := testkit.Get(e.scrape(t, acceptText).one("go_goroutines"))(t)
	return held{int(n), len(programtest.OpenFiles(e.PID()))}
}

// awaitHolding waits until the exporter holds no more than before. Each check opens a connection.
func (e *exporter) awaitHolding(t *testing.T, before held) {
	t.Helper()
	eventually.OK(t, "goroutines and descriptors as before", func() error {
		if now := e.holding(t); now.goroutines > before.goroutines+1 || now.descriptors > before.descriptors+1 {
			return fmt.Errorf("%+v, before %+v", now, before)
		}
		return nil
	})
}

// trouble is a fault of a simulated node that the test starts and ends. Faults by the clock have
// windows that a slow machine misses.
type trouble struct{ path string }

func newTrouble(t *testing.T) *trouble {
	t.Helper()
	return &trouble{filepath.Join(t.TempDir(), "fault")}
}

// fault returns an entry for a spec's faults; rest has its keys except the times.
func (f *trouble) fault(rest string) string {
	return fmt.Sprintf("- {%s, while: %q}\n", rest, f.path)
}

func (f *trouble) begin(t *testing.T) {
	t.Helper()
	must(t, os.WriteFile(f.path, nil, 0o600))
}

func (f *trouble) end(t *testing.T) {
	t.Helper()
	must(t, os.Remove(f.path))
}

// faults returns the flag for a spec with these faults.
func faults(t *testing.T, entries ...string) string {
	t.Helper()
	return "--fake-spec=" + file(t, "spec.yaml", "faults:\n"+strings.Join(entries, ""))
}

// hungGPU is the GPU that stops answering in the hang tests.
const hungGPU = "3"

// hang returns a spec in which one GPU hangs after begin.
func hang(t *testing.T) (f *trouble, spec string) {
	t.Helper()
	f = newTrouble(t)
	return f, faults(t, f.fault("kind: hang, device: "+hungGPU))
}
