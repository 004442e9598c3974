package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// The node's addresses are all on lo. Without kube-proxy the server itself listens on the Service's address.
const (
	nodeName   = "node-1"
	nodeIP     = "10.77.0.1"
	serviceIP  = "10.0.0.1" // of the Service "kubernetes": the first address of serviceNet
	serviceNet = "10.0.0.0/24"
	podNet     = "10.88.0.0/24"
)

// initNamespaces is process 1: it makes the mounts and the network, starts the node, and reaps orphans (containerd's
// shims detach on purpose).
func initNamespaces(o options) {
	mounts(o.dir)
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"address", "add", nodeIP + "/32", "dev", "lo"},
		{"address", "add", serviceIP + "/32", "dev", "lo"},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			fail("ip %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	must(syscall.Sethostname([]byte(nodeName)))
	node := get(os.StartProcess("/proc/self/exe", append([]string{"cluster"}, o.args(modeNode)...),
		&os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Env: os.Environ()}))
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			fail("wait for the node: %w", err)
		case pid == node.Pid && status.Signaled():
			fail("the node was ended by %v", status.Signal())
		case pid == node.Pid && status.ExitStatus() != 0:
			must(errSaid)
		case pid == node.Pid:
			return
		}
	}
}

// sysctls lists the values that the kubelet sets. They belong to the machine, not to the namespace,
// so files with these values are mounted over them and the kubelet finds them set.
var sysctls = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

func mounts(dir string) {
	mount := func(source, target, kind string, flags uintptr) {
		if err := syscall.Mount(source, target, kind, flags, ""); err != nil {
			fail("mount %q on %q: %w", source, target, err)
		}
	}
	for _, d := range []string{"lib", "log", "cni", "sysctl", "net", "docker"} {
		must(os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	// Private towards the machine, shared below: the kubelet's mounts for a pod must reach the pod.
	mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE)
	mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED)
	mount("proc", "/proc", "proc", 0)
	mount("tmpfs", "/run", "tmpfs", 0)
	mount(filepath.Join(dir, "lib"), "/var/lib", "", syscall.MS_BIND)
	mount(filepath.Join(dir, "log"), "/var/log", "", syscall.MS_BIND)
	// /proc/sys/net belongs to the network namespace and stays writable for CNI.
	mount("/proc/sys/net", filepath.Join(dir, "net"), "", syscall.MS_BIND)
	mount("/proc/sys", "/proc/sys", "", syscall.MS_BIND)
	mount("", "/proc/sys", "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY)
	mount(filepath.Join(dir, "net"), "/proc/sys/net", "", syscall.MS_BIND)
	for name, value := range sysctls {
		file := filepath.Join(dir, "sysctl", strings.ReplaceAll(name, "/", "."))
		must(os.WriteFile(file, []byte(value+"\n"), 0o644))
		mount(file, filepath.Join("/proc/sys", name), "", syscall.MS_BIND)
	}
}
