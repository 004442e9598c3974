package isolation

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// self is the running program, also after its file was replaced.
const self = "/proc/self/exe"

// launcher starts processes from one thread. The kernel sends a child its
// parent-death signal when the thread that started it ends, not the process, so
// that thread must outlive the children: run keeps it, and ends it at the end.
type launcher struct{ jobs chan func() }

func newLauncher() *launcher { return &launcher{jobs: make(chan func())} }

func (l *launcher) run(ctx context.Context) {
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	for {
		select {
		case <-ctx.Done():
			return
		case job := <-l.jobs:
			job()
		}
	}
}

// process is a started child.
type process struct {
	cmd     *exec.Cmd
	control *os.File // our end
	output  *os.File // what it writes to stdout and stderr
}

// start starts a child with the control channel as descriptor ControlFD.
func (l *launcher) start(ctx context.Context, argv, env []string) (*process, error) {
	ours, theirs, err := socketpair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }()
	read, write, err := os.Pipe()
	if err != nil {
		_ = ours.Close()
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	defer func() { _ = write.Close() }()
	p := &process{control: ours, output: read, cmd: &exec.Cmd{
		Path: self, Args: argv, Env: env, Stdout: write, Stderr: write,
		ExtraFiles:  []*os.File{theirs}, // becomes ControlFD
		SysProcAttr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	}}
	done := make(chan error, 1)
	select {
	case l.jobs <- func() { done <- p.cmd.Start() }:
		err = <-done
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		_ = ours.Close()
		_ = read.Close()
		return nil, err
	}
	return p, nil
}

func socketpair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make control channel: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control of the child"), nil
}

// exit is how a process ended.
type exit struct {
	code   int // -1 after a signal
	signal syscall.Signal
	cpu    time.Duration
}

// wait reaps the process.
func (p *process) wait() exit {
	_ = p.cmd.Wait() // what it says is in ProcessState, too
	st := p.cmd.ProcessState
	if st == nil { // reaped by somebody else
		return exit{code: -1}
	}
	e := exit{code: st.ExitCode(), cpu: st.UserTime() + st.SystemTime()}
	if ws, ok := st.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		e.signal = ws.Signal()
	}
	return e
}
