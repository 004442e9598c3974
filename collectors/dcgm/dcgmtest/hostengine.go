package dcgmtest

import (
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
)

//go:embed hostengine/hostengine.c
var hostEngineSource []byte

// HostEngine is a process with a host engine of NVIDIA's own libdcgm.so.4 and a simulated NVML.
type HostEngine struct {
	tb      testing.TB
	exe     string
	address string
	env     []string
	process *programtest.Process
}

// NewHostEngine starts a host engine on the GPUs of n, which must have its own library (nvmltest.Write). The loader must
// find libdcgm.so.4. The engine listens on address, "127.0.0.1:5555" or the path of a Unix socket, until the test ends.
func NewHostEngine(tb testing.TB, n *nvmltest.Node, address string) *HostEngine {
	tb.Helper()
	programtest.Find(tb, "cc")
	dir := tb.TempDir()
	exe := filepath.Join(dir, "hostengine")
	testkit.Must(tb, Compile(dir, map[string][]byte{"hostengine.c": hostEngineSource}, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-isystem", dir, "-o", exe, "hostengine.c", "-ldl"))
	libraries := filepath.Dir(n.Library()) + ":" + os.Getenv("LD_LIBRARY_PATH")
	e := &HostEngine{tb: tb, exe: exe, address: address, env: append(os.Environ(), "LD_LIBRARY_PATH="+libraries)}
	e.Start()
	return e
}

// Start restarts the engine at its address and waits until it listens.
func (e *HostEngine) Start() {
	e.tb.Helper()
	where := e.address
	if _, port, err := net.SplitHostPort(e.address); err == nil {
		where = port
	}
	e.process = programtest.Start(e.tb, e.exe, []string{where}, programtest.Options{Env: e.env})
	e.process.Await(e.tb, "a host engine", func() error {
		if strings.Contains(e.process.Output(), "ready") {
			return nil
		}
		return errors.New("it does not listen yet")
	})
}

// Stop kills the process.
func (e *HostEngine) Stop() {
	e.tb.Helper()
	e.process.Signal(e.tb, syscall.SIGKILL)
	<-e.process.Ended()
}

// Freeze stops the process until release is called: its connections stay, and the kernel still accepts new ones.
func (e *HostEngine) Freeze() (release func()) {
	e.tb.Helper()
	e.process.Signal(e.tb, syscall.SIGSTOP)
	eventually.OK(e.tb, "every thread of the host engine is stopped", e.stopped)
	return func() { e.process.Signal(e.tb, syscall.SIGCONT) }
}

// stopped returns nil if all threads of the process are in state T (proc_pid_stat(5)).
func (e *HostEngine) stopped() error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", e.PID()))
	if err != nil {
		return err
	}
	for _, t := range threads {
		text, err := os.ReadFile(t)
		if err != nil {
			return err
		}
		if _, after, _ := strings.Cut(string(text), ") "); !strings.HasPrefix(after, "T") {
			return fmt.Errorf("%s: %s", t, text)
		}
	}
	return nil
}

// PID returns the engine's process ID.
func (e *HostEngine) PID() int { return e.process.PID() }
