//go:build linux

package main_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	kubelet "warpgauge/pkg/kube/kubetest"
	"warpgauge/pkg/kube/kubetest/apitest"
)

// Pods that share GPU 0, and an additional process.
const (
	uidTrain = "0a1b2c3d-0000-4000-8000-000000000001"
	uidChat  = "0a1b2c3d-0000-4000-8000-000000000002"
	uidIdle  = "0a1b2c3d-0000-4000-8000-000000000003"
	mebibyte = 1 << 20
)

// TestE2EShared: the binary finds the pods of real processes by their control groups. Only the GPU
// is simulated.
func TestE2EShared(t *testing.T) {
	t.Parallel()
	mount := controlGroups(t)
	exe := build(t)
	train := container(t, mount, uidTrain, 'a')
	side := container(t, mount, uidTrain, 'b')
	chat := container(t, mount, uidChat, 'c')
	stranger := waiting(t)

	spec := file(t, "spec.yaml", fmt.Sprintf(`processes:
- {device: 0, pid: %d, memory: %d, busy: 30}
- {device: 0, pid: %d, memory: %d, busy: 4}
- {device: 0, pid: %d, memory: %d, busy: 20.5}
- {device: 0, pid: %d, memory: %d, busy: 1}
- {device: 1, pid: %d, memory: %d, busy: 50}
`, train, 3000*mebibyte, side, 200*mebibyte, chat, 1000*mebibyte, stranger, 50*mebibyte, chat, 7*mebibyte))

	k, api := kubelet.Start(t), apitest.Start(t, "node-1")
	api.Pods(apitest.Pod("ml", "train", uidTrain, nil), apitest.Pod("web", "chat", uidChat, nil), apitest.Pod("web", "idle", uidIdle, nil))
	e := serveBy(t, []string{"env", "KUBECONFIG=" + api.Kubeconfig(), "NODE_NAME=node-1", exe},
		withKubelet(k.Socket(), "--kubernetes-virtual-gpus", "--fake-spec="+spec, "--isolation=process")...) // vendor libraries use a child, too
	gpus := e.uuids(t)
	k.Set(sharers(gpus["0"], gpus["1"])...)
	checkShared(t, e.await(t, "values of the pods", shared))
}

// sharers returns three pods on GPU 0, one with two containers, and a pod with GPU 1 alone.
func sharers(shared, own string) []*v1.PodResources {
	part := func(n int) kubelet.DevicesOf {
		return kubelet.Devices("nvidia.com/gpu", fmt.Sprintf("%s::%d", shared, n))
	}
	return []*v1.PodResources{
		kubelet.Pod("ml", "train", kubelet.Container("main", part(0)), kubelet.Container("side", part(1))),
		kubelet.Pod("web", "chat", kubelet.Container("server", part(2), kubelet.Devices("nvidia.com/gpu", own))),
		kubelet.Pod("web", "idle", kubelet.Container("server", part(3))),
	}
}

// shared checks the values of each pod. Two containers of a pod are one series, because containers
// are not named. A pod without processes has 0.
func shared(p page) error {
	var errs []error
	for pod, want := range map[string][2]float64{"train": {34, 3200}, "chat": {20.5, 1000}, "idle": {}} {
		errs = append(errs,
			p.want(want[0], "DCGM_FI_DEV_GPU_UTIL", "gpu", "0", "pod", pod),
			p.want(want[1], "DCGM_FI_DEV_FB_USED", "gpu", "0", "pod", pod))
	}
	return errors.Join(errs...)
}

// checkShared checks the rest of the page.
func checkShared(t *testing.T, p page) {
	t.Helper()
	for _, s := range p.family("DCGM_FI_DEV_FB_USED") {
		switch {
		case s.get("gpu") == "0" && s.get("pod") == "": // the device's own series
			if s.value <= 0 || s.get("vgpu")+s.get("pod_uid")+s.get("container") != "" {
				t.Errorf("the device's own series is %v %v", s.labels, s.value)
			}
		case s.get("gpu") == "0":
			if s.get("pod_uid") == "" || s.get("pod") == "train" && s.get("container") != "" {
				t.Errorf("a pod's series is %v", s.labels)
			}
		case s.get("gpu") == "1": // one pod: nothing to divide
			if s.get("pod") != "chat" || s.get("pod_uid") != "" || s.value == 7 {
				t.Errorf("the series of a GPU with one pod is %v %v", s.labels, s.value)
			}
		case s.get("pod") != "":
			t.Errorf("a GPU without a pod shows %v", s.labels)
		}
	}
	of := map[string]int{}
	for _, s := range p {
		if s.get("gpu") == "0" {
			of[s.name]++
		}
	}
	if of["DCGM_FI_DEV_GPU_UTIL"] != 4 || of["DCGM_FI_DEV_FB_USED"] != 4 || of["DCGM_FI_DEV_GPU_TEMP"] != 4 { // three pods and the device; four containers
		t.Errorf("GPU 0 has series %v, want 4 of each", of)
	}
}

// controlGroups returns the mount point of a writable control group hierarchy, or skips the test.
func controlGroups(t *testing.T) string {
	t.Helper()
	// The initial PID namespace has this number (include/linux/proc_ns.h).
	if own, err := os.Readlink("/proc/self/ns/pid"); err != nil || own != "pid:[4026531836]" {
		t.Skipf("needs the machine's PID namespace, ours is %q (%v)", own, err)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	must(t, err)
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 4 || f[2] != "cgroup2" && (f[2] != "cgroup" || !strings.Contains(f[3], "name=systemd")) {
			continue
		}
		root := filepath.Join(f[1], fmt.Sprintf("warpgauge-e2e-%d", os.Getpid()))
		if os.Mkdir(root, 0o755) == nil {
			t.Cleanup(func() { removeGroups(t, root) })
			return root
		}
	}
	t.Skip("needs a hierarchy of control groups that may be changed: be root, outside of containers")
	return ""
}

// removeGroups removes control groups below dir, innermost first; their files cannot be removed.
func removeGroups(t *testing.T, dir string) {
	var dirs []string
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error { // skip what cannot be walked
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	for _, dir := range slices.Backward(dirs) {
		if err := os.Remove(dir); err != nil {
			t.Errorf("remove a control group of this test: %v", err)
		}
	}
}

// container starts a process in the control group of a pod's container.
func container(t *testing.T, root, uid string, id byte) (pid int) {
	t.Helper()
	dir := filepath.Join(root, "kubepods", "burstable", "pod"+uid, strings.Repeat(string(id), 64))
	must(t, os.MkdirAll(dir, 0o755))
	pid = waiting(t) // it ends before its group is removed
	must(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0))
	return pid
}

// waiting starts an idle process as another user than the exporter. It ends with the test.
func waiting(t *testing.T) (pid int) {
	t.Helper()
	cmd := exec.Command("cat") // cat ends with its input
	input, err := cmd.StdinPipe()
	must(t, err)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	must(t, cmd.Start())
	t.Cleanup(func() {
		input.Close()
		cmd.Wait()
	})
	return cmd.Process.Pid
}
