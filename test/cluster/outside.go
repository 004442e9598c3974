package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// runOutside creates the namespaces, waits for the run inside and cleans up.
func runOutside(o options) {
	if why := cannot(); why != "" {
		fmt.Println("cluster: not run:", why)
		if strings.Contains(","+os.Getenv("WARPGAUGE_REQUIRE")+",", ",cluster,") {
			fail("WARPGAUGE_REQUIRE wants it")
		}
		return
	}
	o.dir = get(os.MkdirTemp("", "warpgauge-cluster-"))
	defer func() { _ = os.RemoveAll(o.dir) }()
	must(os.RemoveAll(o.logs), os.MkdirAll(o.logs, 0o755))
	before := containerGroups()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", o.args(modeInit)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
		Setpgid:    true, // a terminal's interrupt reaches only this process, which ends the child
	}
	err := cmd.Run()
	removeGroups(before)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		err = errSaid
	}
	must(err)
}

// cannot returns why the cluster cannot run here. It tries each requirement.
func cannot() string {
	if os.Geteuid() != 0 {
		return "it takes root"
	}
	if err := missing("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "helm", "chart.test", "etcd", "ip"); err != nil {
		return err.Error()
	}
	probe := exec.CommandContext(context.Background(), "/bin/true")
	probe.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS}
	if err := probe.Run(); err != nil {
		return fmt.Sprintf("no namespaces here: %v", err)
	}
	return ""
}

// containerGroups returns the control groups in which containerd's CRI puts containers.
func containerGroups() map[string]bool {
	out := map[string]bool{}
	for _, pattern := range []string{"/sys/fs/cgroup/k8s.io", "/sys/fs/cgroup/*/k8s.io", "/sys/fs/cgroup/k8s.io/*", "/sys/fs/cgroup/*/k8s.io/*"} {
		found, _ := filepath.Glob(pattern)
		for _, g := range found {
			if info, err := os.Stat(g); err == nil && info.IsDir() {
				out[g] = true
			}
		}
	}
	return out
}

// removeGroups removes the control groups created since before. They outlive their processes, which ended with the
// namespace.
func removeGroups(before map[string]bool) {
	groups := slices.Sorted(maps.Keys(containerGroups()))
	for _, g := range slices.Backward(groups) { // children before their parents
		if !before[g] {
			_ = syscall.Rmdir(g)
		}
	}
}
