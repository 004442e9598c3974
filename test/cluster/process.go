package main

import (
	"cmp"
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

// findPrograms puts our own builds in PATH before Debian's programs.
func findPrograms(o options) {
	path := filepath.Join(o.repo, "bin")
	for _, pattern := range []string{"kubernetes-v*", "helm-v*", "etcd-server"} {
		if found := get(filepath.Glob(filepath.Join(o.tools, pattern))); found != nil {
			path += ":" + found[len(found)-1]
		}
	}
	must(os.Setenv("PATH", path+":"+os.Getenv("PATH")))
}

// missing returns why a program cannot be run.
func missing(programs ...string) error {
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			return err
		}
	}
	return nil
}

// process is a server of the cluster. If it ends unexpectedly, the whole run ends.
type process struct {
	cmd     *exec.Cmd
	done    chan struct{}
	stopped atomic.Bool // on purpose
}

// launch starts a server and writes its output to a file of its name.
func (n *node) launch(name, program string, args ...string) *process {
	log := get(os.OpenFile(n.log(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644))
	defer func() { _ = log.Close() }() // the server has its own descriptor
	p := &process{cmd: exec.Command(program, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		fail("start %s: %w", name, err)
	}
	go func() {
		err := p.cmd.Wait()
		close(p.done)
		if !p.stopped.Load() {
			text, _ := os.ReadFile(n.log(name))
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			n.cancel(fmt.Errorf("%s ended: %w: %s", name, cmp.Or(err, errors.New("exit status 0")), strings.Join(lines[max(0, len(lines)-5):], "\n")))
		}
	}()
	return p
}

// stop ends a server as an init system would.
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

// command runs a program to its end and returns its output.
func (n *node) command(stdin, dir, program string, args ...string) string {
	cmd := exec.CommandContext(n.ctx, program, args...)
	cmd.Stdin, cmd.Dir = strings.NewReader(stdin), dir
	config := n.path("admin.kubeconfig")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+config, "WARPGAUGE_CHART_KUBECONFIG="+config, "HOME="+n.dir) // for the caches of Helm and kubectl
	out, err := cmd.CombinedOutput()
	if err != nil {
		fail("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out)
}

func (n *node) kubectl(args ...string) string {
	return n.command("", n.dir, "kubectl", args...)
}

// apply creates the objects of a manifest.
func (n *node) apply(text string) {
	n.command(text, n.dir, "kubectl", "apply", "--validate=strict", "-f", "-")
}

// applyFile creates the objects of a file of manifests.
func (n *node) applyFile(name string) { n.apply(string(get(manifests.ReadFile("manifests/" + name)))) }

func (n *node) helm(args ...string) string { return n.command("", n.dir, "helm", args...) }
