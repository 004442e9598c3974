package isolation

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// self is the running program, also after its file was replaced.
const self = "/proc/self/exe"

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
