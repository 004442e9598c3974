package isolation

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

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
