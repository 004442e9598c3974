package programtest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"warpgauge/internal/testkit/eventually"
)

// shown is how many bytes a failed test shows of its output's end.
const shown = 8000

// A Process is a program that the test has started and that ends with the test.
type Process struct {
	name   string
	cmd    *exec.Cmd
	output Output
	ended  chan struct{} // closed when the process has ended and err is set
	err    error
}

// Options configures a process.
type Options struct {
	Env    []string // nil means the test's environment
	Stderr *os.File // nil adds standard error to Output
}

// Start starts a program. It is killed at the end of the test, or if the test is killed. If the test fails, it shows
// the program's output.
func Start(tb testing.TB, exe string, args []string, o Options) *Process {
	tb.Helper()
	p := &Process{name: filepath.Base(exe), ended: make(chan struct{})}
	if err := p.start(exe, args, o); err != nil {
		tb.Fatalf("start %q: %v", exe, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	tb.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended already
		<-p.ended
		if tb.Failed() {
			text := p.Output()
			tb.Logf("output of %s %q:\n%s", p.name, args, text[max(0, len(text)-shown):])
		}
	})
	return p
}

// start retries while the file is busy: a process that another test has just forked may still hold the descriptor
// through which a test wrote this program (https://go.dev/issue/22315).
func (p *Process) start(exe string, args []string, o Options) error {
	for end := time.Now().Add(eventually.Patience); ; time.Sleep(time.Millisecond) {
		// Not the test's context, which ends before the cleanups that may need the process.
		p.cmd = exec.CommandContext(context.Background(), exe, args...) //nolint:gosec // the test's program
		p.cmd.Env = o.Env
		p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
		if o.Stderr != nil {
			p.cmd.Stderr = o.Stderr
		}
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		err := p.cmd.Start()
		if !errors.Is(err, syscall.ETXTBSY) || time.Now().After(end) {
			return err
		}
	}
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Output returns the text so far of standard output and standard error.
func (p *Process) Output() string { return p.output.String() }

// Ended returns a channel that is closed when the process has ended and Output is complete.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Signal sends a signal. The process may receive it later.
func (p *Process) Signal(tb testing.TB, s os.Signal) {
	tb.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		tb.Fatalf("send %v to %s: %v", s, p.name, err)
	}
}

// ExitCode waits for the process to end by itself. It returns -1 if a signal ended the process.
func (p *Process) ExitCode(tb testing.TB) int {
	tb.Helper()
	select {
	case <-p.ended:
	case <-time.After(eventually.Patience):
		tb.Fatalf("%s still runs after %v", p.name, eventually.Patience)
	}
	var exit *exec.ExitError
	if p.err != nil && !errors.As(p.err, &exit) {
		tb.Fatalf("wait for %s: %v", p.name, p.err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// Await waits until f returns nil, as eventually.OK does. If the process ends first, the test
// fails with the process's output.
func (p *Process) Await(tb testing.TB, what string, f func() error) {
	tb.Helper()
	eventually.OK(tb, what, func() error {
		select {
		case <-p.ended:
			tb.Fatalf("%s: %s has ended (%v), its output:\n%s", what, p.name, p.cmd.ProcessState, p.Output())
		default:
		}
		return f()
	})
}
