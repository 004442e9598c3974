package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// process is a server of the cluster. Its unwanted end ends the whole run.
type process struct {
	name    string
	cmd     *exec.Cmd
	done    chan struct{}
	stopped atomic.Bool // on purpose
}

// launch starts a server, whose output goes to a file of its name.
func (n *node) launch(name, program string, args ...string) (*process, error) {
	log, err := os.OpenFile(n.log(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the server has its own descriptor
	p := &process{name: name, cmd: exec.Command(program, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Env = append(os.Environ(), "PATH="+n.tools.path())
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		err := p.cmd.Wait()
		close(p.done)
		if !p.stopped.Load() {
			n.cancel(fmt.Errorf("%s ended: %w: %s", name, cmp.Or(err, errors.New("exit status 0")), tail(n.log(name), 5)))
		}
	}()
	return p, nil
}

// stop ends a server as its init system would.
func (p *process) stop() {
	p.stopped.Store(true)
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

func (n *node) log(name string) string { return filepath.Join(n.logs, name+".log") }

// tail returns the last lines of a file.
func tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// command runs a program to its end and returns its output.
func (n *node) command(stdin, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(n.ctx, program, args...)
	cmd.Stdin, cmd.Dir = strings.NewReader(stdin), dir
	cmd.Env = append(os.Environ(), "PATH="+n.tools.path(), "KUBECONFIG="+n.path("admin.kubeconfig"), "WARPGAUGE_CHART_KUBECONFIG="+n.path("admin.kubeconfig"),
		// Helm's and kubectl's caches.
		"HOME="+n.dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

func (n *node) kubectl(stdin string, args ...string) (string, error) {
	return n.command(stdin, n.dir, n.tools.kubectl, args...)
}

// errNotYet is why a condition does not hold, where there is nothing more to say.
var errNotYet = errors.New("not yet")

// wait repeats a check until it is content or the time is over, and then says what the
// check said last.
func (n *node) wait(limit time.Duration, check func() error) error {
	ctx, cancel := context.WithTimeout(n.ctx, limit)
	defer cancel()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			if n.ctx.Err() != nil {
				return context.Cause(n.ctx)
			}
			return fmt.Errorf("after %v: %w", limit, err)
		case <-tick.C:
		}
	}
}
