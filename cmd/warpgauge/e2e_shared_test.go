//go:build linux

package main_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"warpgauge/internal/testkit"
	kubelet "warpgauge/pkg/kube/kubetest"
	"warpgauge/pkg/kube/kubetest/apitest"
)

// Pods that share GPU 0.
const (
	uidTrain = "0a1b2c3d-0000-4000-8000-000000000001"
	uidChat  = "0a1b2c3d-0000-4000-8000-000000000002"
	uidIdle  = "0a1b2c3d-0000-4000-8000-000000000003"
)

// TestE2EShared: the binary finds the pods of real processes by their control groups. Only the GPU is simulated. pkg/owner
// tests processes of all kinds, and pkg/exposition the series.
func TestE2EShared(t *testing.T) {
	t.Parallel()
	groups := controlGroups(t)
	exe := build(t)
	train, chat := container(t, groups, uidTrain, "a"), container(t, groups, uidChat, "b")
	spec := file(t, "spec.yaml", fmt.Sprintf("processes:\n- {device: 0, pid: %d, memory: %d, busy: 30}\n- {device: 0, pid: %d, memory: %d, busy: 20.5}\n",
		train, 3000<<20, chat, 1000<<20))
	k, api := kubelet.Start(t), apitest.Start(t, "node-1")
	api.Pods(apitest.Pod("ml", "train", uidTrain, nil), apitest.Pod("ml", "chat", uidChat, nil), apitest.Pod("ml", "idle", uidIdle, nil))
	e := serveBy(t, []string{"env", "KUBECONFIG=" + api.Kubeconfig(), "NODE_NAME=node-1", exe},
		withKubelet(k.Socket(), "--kubernetes-virtual-gpus", "--fake-spec="+spec, "--isolation=process")...) // vendor libraries use a child, too
	gpu := e.uuids(t)["0"]
	k.Set(pod("train", gpu+"::0"), pod("chat", gpu+"::1"), pod("idle", gpu+"::2"))
	e.await(t, "values of the pods, and of the device", func(p page) error {
		errs := []error{count(8+3, "DCGM_FI_DEV_GPU_UTIL")(p)}
		for pod, want := range map[string][2]float64{"train": {30, 3000}, "chat": {20.5, 1000}, "idle": {}} {
			errs = append(errs,
				p.want(want[0], "DCGM_FI_DEV_GPU_UTIL", "gpu", "0", "pod", pod),
				p.want(want[1], "DCGM_FI_DEV_FB_USED", "gpu", "0", "pod", pod))
		}
		return errors.Join(errs...)
	})
}

// controlGroups returns the mount point of a writable control group hierarchy, or skips the test.
func controlGroups(t *testing.T) string {
	t.Helper()
	// The initial PID namespace has this number (include/linux/proc_ns.h).
	if own, err := os.Readlink("/proc/self/ns/pid"); err != nil || own != "pid:[4026531836]" {
		t.Skipf("needs the machine's PID namespace, ours is %q (%v)", own, err)
	}
	mounts := testkit.Get(os.ReadFile("/proc/self/mounts"))(t)
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 4 || f[2] != "cgroup2" && (f[2] != "cgroup" || !strings.Contains(f[3], "name=systemd")) {
			continue
		}
		root := filepath.Join(f[1], fmt.Sprintf("warpgauge-e2e-%d-%s", os.Getpid(), t.Name()))
		if os.Mkdir(root, 0o755) == nil {
			t.Cleanup(func() { must(t, os.Remove(root)) })
			return root
		}
	}
	t.Skip("needs a hierarchy of control groups that may be changed: be root, outside of containers")
	return ""
}

// container starts an idle process in the control group of a pod's container, as another user than the exporter. It ends
// with the test.
func container(t *testing.T, root, uid, id string) (pid int) {
	t.Helper()
	dir := filepath.Join(root, "kubepods", "burstable", "pod"+uid, strings.Repeat(id, 64))
	must(t, os.MkdirAll(dir, 0o755))
	cmd := exec.Command("cat") // cat ends with its input
	input := testkit.Get(cmd.StdinPipe())(t)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	must(t, cmd.Start())
	t.Cleanup(func() {
		input.Close()
		cmd.Wait()
		for d := dir; d != root; d = filepath.Dir(d) {
			_ = os.Remove(d) // the last container removes what they share
		}
	})
	must(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0))
	return cmd.Process.Pid
}
