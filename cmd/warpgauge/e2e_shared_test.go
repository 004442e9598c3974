//go:build linux

package main_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
	kubelet "warpgauge/pkg/kube/kubetest"
	"warpgauge/pkg/kube/kubetest/apitest"
)

// Pods that share GPU 0, and one more process.
const (
	uidTrain = "0a1b2c3d-0000-4000-8000-000000000001"
	uidChat  = "0a1b2c3d-0000-4000-8000-000000000002"
	uidIdle  = "0a1b2c3d-0000-4000-8000-000000000003"
	mebibyte = 1 << 20
)

// TestE2EShared runs the real binary, which finds the pods of real processes by
// their real control groups; only the GPU that they are on is simulated.
func TestE2EShared(t *testing.T) {
	t.Parallel()
	mount := controlGroups(t)
	exe := build(t)
	train := container(t, mount, uidTrain, 'a')
	side := container(t, mount, uidTrain, 'b')
	chat := container(t, mount, uidChat, 'c')
	stranger := waiting(t)

	flags := t.TempDir()
	ghost := filepath.Join(flags, "ghost")
	spec := file(t, "spec.yaml", fmt.Sprintf(`processes:
- {device: 0, pid: %d, memory: %d, busy: 30}
- {device: 0, pid: %d, memory: %d, busy: 4}
- {device: 0, pid: %d, memory: %d, busy: 20.5}
- {device: 0, pid: %d, memory: %d, busy: 1}
- {device: 0, pid: 4194303, memory: 1, busy: 1, while: %s}
- {device: 1, pid: %d, memory: %d, busy: 50}
`, train, 3000*mebibyte, side, 200*mebibyte, chat, 1000*mebibyte, stranger, 50*mebibyte, ghost, chat, 7*mebibyte))

	k, api := kubelet.Start(t), apitest.Start(t, "node-1")
	api.Pods(apitest.Pod("ml", "train", uidTrain, nil), apitest.Pod("web", "chat", uidChat, nil), apitest.Pod("web", "idle", uidIdle, nil))
	start := withEnv(t, exe, "KUBECONFIG="+api.Kubeconfig(), "NODE_NAME=node-1")
	args := withKubelet(k.Socket(), "--kubernetes-virtual-gpus", "--fake-spec="+spec)
	share := func(e *exporter) {
		gpus := e.uuids(t)
		k.Set(sharers(gpus["0"], gpus["1"])...)
	}

	// With child processes, as vendors' libraries have.
	e := serve(t, start, append(args, "--isolation=process")...)
	share(e)
	eventually.OK(t, "values of the pods", func() error { return e.scrape(t, acceptText).shared(0) })
	checkShared(t, e.scrape(t, acceptText))

	// A process that cannot be found may be any pod's: one that has none is not known any more.
	write(t, ghost, "")
	eventually.OK(t, "the value of a pod without processes to be unknown", func() error {
		_, err := e.scrape(t, acceptText).one("DCGM_FI_DEV_FB_USED", "pod", "idle")
		if err == nil {
			return errors.New("it is told still")
		}
		return nil
	})
	must(t, os.Remove(ghost))
	eventually.OK(t, "it to be known again", func() error { return e.scrape(t, acceptText).shared(0) })

	testRuntime(t, exe, args, share)
	testForeignPIDs(t, start, args, share)
}

// containerRuntime is one that knows the containers of the test.
type containerRuntime struct {
	cri.UnimplementedRuntimeServiceServer
}

// ListContainers implements the CRI.
func (containerRuntime) ListContainers(context.Context, *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	one := func(id byte, uid, namespace, pod, name string) *cri.Container {
		return &cri.Container{
			Id: strings.Repeat(string(id), 64), State: cri.ContainerState_CONTAINER_RUNNING, Metadata: &cri.ContainerMetadata{Name: name},
			Labels: map[string]string{
				"io.kubernetes.pod.uid": uid, "io.kubernetes.pod.namespace": namespace, "io.kubernetes.pod.name": pod, "io.kubernetes.container.name": name,
			},
		}
	}
	return &cri.ListContainersResponse{Containers: []*cri.Container{
		one('a', uidTrain, "ml", "train", "main"), one('b', uidTrain, "ml", "train", "side"),
		one('c', uidChat, "web", "chat", "server"), one('d', uidIdle, "web", "idle", "server"),
	}}, nil
}

// testRuntime asks the container runtime in the API server's place: containers are
// told apart, and the API server need not be there.
func testRuntime(t *testing.T, exe string, args []string, share func(*exporter)) {
	socket := kubelet.SocketPath(t) // short enough for a socket
	must(t, os.MkdirAll(filepath.Dir(socket), 0o750))
	l, err := net.Listen("unix", socket)
	must(t, err)
	server := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(server, containerRuntime{})
	go server.Serve(l)
	t.Cleanup(server.Stop)
	e := serve(t, exe, append(args, "--container-runtime-socket=unix://"+socket)...)
	share(e)
	eventually.OK(t, "values of the containers", func() error {
		p := e.scrape(t, acceptText)
		var errs []error
		for _, want := range []struct {
			pod, container string
			util, memory   float64
		}{{"train", "main", 30, 3000}, {"train", "side", 4, 200}, {"chat", "server", 20.5, 1000}, {"idle", "server", 0, 0}} {
			of := []string{"gpu", "0", "pod", want.pod, "container", want.container}
			errs = append(errs, p.want(want.util, "DCGM_FI_DEV_GPU_UTIL", of...), p.want(want.memory, "DCGM_FI_DEV_FB_USED", of...))
		}
		if asked := p.family("warpgauge_mapping_up"); len(asked) != 3 {
			errs = append(errs, fmt.Errorf("mappings %v, want those of the kubelet, the runtime and processes", asked))
		}
		return errors.Join(errs...)
	})
}

// sharers are three pods on GPU 0, one of them with two containers, and one that
// has GPU 1 for itself.
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

// shared wants the values of each pod: two containers of one pod are one series,
// since containers are not named, and a pod without processes has 0.
func (p page) shared(idle float64) error {
	var errs []error
	for pod, want := range map[string][2]float64{"train": {34, 3200}, "chat": {20.5, 1000}, "idle": {idle, idle}} {
		errs = append(errs,
			p.want(want[0], "DCGM_FI_DEV_GPU_UTIL", "gpu", "0", "pod", pod),
			p.want(want[1], "DCGM_FI_DEV_FB_USED", "gpu", "0", "pod", pod))
	}
	return errors.Join(errs...)
}

// checkShared looks at what else the page says.
func checkShared(t *testing.T, p page) {
	t.Helper()
	for _, s := range p.family("DCGM_FI_DEV_FB_USED") {
		switch {
		case s.get("gpu") == "0" && s.get("pod") == "": // the device's own
			if s.value <= 0 || s.get("vgpu")+s.get("pod_uid")+s.get("container") != "" {
				t.Errorf("the device's own series is %v %v", s.labels, s.value)
			}
		case s.get("gpu") == "0":
			if s.get("pod_uid") == "" || s.get("pod") == "train" && s.get("container") != "" {
				t.Errorf("a pod's series is %v", s.labels)
			}
		case s.get("gpu") == "1": // of one pod: nothing to divide
			if s.get("pod") != "chat" || s.get("pod_uid") != "" || s.value == 7 {
				t.Errorf("the series of a GPU with one pod is %v %v", s.labels, s.value)
			}
		case s.get("pod") != "":
			t.Errorf("a GPU without a pod shows %v", s.labels)
		}
	}
	for name, want := range map[string]int{"DCGM_FI_DEV_GPU_UTIL": 4, "DCGM_FI_DEV_FB_USED": 4, "DCGM_FI_DEV_GPU_TEMP": 4} {
		n := 0
		for _, s := range p.family(name) {
			if s.get("gpu") == "0" {
				n++
			}
		}
		if n != want { // three pods and the device; four containers
			t.Errorf("GPU 0 has %d series of %s, want %d", n, name, want)
		}
	}
}

// testForeignPIDs starts the exporter in a PID namespace of its own, as in a pod
// without hostPID: numbers of processes mean nothing there, and no pod has a value.
func testForeignPIDs(t *testing.T, exe string, args []string, share func(*exporter)) {
	unshare := programtest.Find(t, "unshare")
	path := filepath.Join(t.TempDir(), "namespace")
	script := fmt.Sprintf("#!/bin/sh\nexec %s --pid --fork --kill-child --mount-proc %s \"$@\"\n", unshare, exe)
	must(t, os.WriteFile(path, []byte(script), 0o700))
	e := serve(t, path, args...)
	share(e)
	eventually.OK(t, "what is missing, in the metrics", func() error {
		p := e.scrape(t, acceptText)
		_, missing := p.one("DCGM_FI_DEV_GPU_TEMP", "gpu", "0", "pod", "idle")
		_, counted := p.one("warpgauge_mapping_errors_total", "mapping", "processes", "reason", "no_host_pid")
		return errors.Join(missing, counted, p.want(0, "warpgauge_mapping_up", "mapping", "processes"))
	})
	p := e.scrape(t, acceptText)
	for _, name := range []string{"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"} {
		for _, s := range p.family(name) {
			if s.get("gpu") == "0" && s.get("pod") != "" {
				t.Errorf("%v is %v, which cannot be known", s.labels, s.value)
			}
		}
	}
}

// controlGroups returns where a hierarchy of control groups is mounted that we may
// change, or skips.
func controlGroups(t *testing.T) string {
	t.Helper()
	// The first PID namespace of a machine has this number (include/linux/proc_ns.h).
	if own, err := os.Readlink("/proc/self/ns/pid"); err != nil || own != "pid:[4026531836]" {
		t.Skipf("needs the machine's PID namespace, ours is %q (%v)", own, err)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	must(t, err)
	for s := bufio.NewScanner(bytes.NewReader(mounts)); s.Scan(); {
		f := strings.Fields(s.Text())
		if len(f) < 4 || f[2] != "cgroup2" && (f[2] != "cgroup" || !strings.Contains(f[3], "name=systemd")) {
			continue
		}
		root := filepath.Join(f[1], fmt.Sprintf("warpgauge-e2e-%d", os.Getpid()))
		if os.Mkdir(root, 0o755) == nil {
			t.Cleanup(func() { removeGroup(t, root) })
			return root
		}
	}
	t.Skip("needs a hierarchy of control groups that may be changed: be root, outside of containers")
	return ""
}

func removeGroup(t *testing.T, dir string) {
	if err := os.Remove(dir); err != nil {
		t.Errorf("remove a control group of this test: %v", err)
	}
}

// container starts a process in the control group of a pod's container.
func container(t *testing.T, root, uid string, id byte) (pid int) {
	t.Helper()
	dir := root
	for _, part := range []string{"kubepods", "burstable", "pod" + uid, strings.Repeat(string(id), 64)} {
		dir = filepath.Join(dir, part)
		switch err := os.Mkdir(dir, 0o755); {
		case err == nil:
			made := dir
			t.Cleanup(func() { removeGroup(t, made) })
		case !errors.Is(err, os.ErrExist):
			t.Fatal(err)
		}
	}
	pid = waiting(t) // ends before its group is removed
	must(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0))
	return pid
}

// waiting starts a process that does nothing until the test ends, as another user
// than the exporter's.
func waiting(t *testing.T) (pid int) {
	t.Helper()
	cmd := exec.Command("cat") // it ends with its input
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
