package owner

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"warpgauge/pkg/collector"
)

// TestRealControlGroups puts a process into control groups of this machine and reads the real /proc.
func TestRealControlGroups(t *testing.T) {
	if own, _, err := procfs("/proc").self(); err != nil || own != firstPIDNamespace {
		t.Skipf("this takes the machine's PID namespace; ours is %q (%v)", own, err)
	}
	mount, own := writableHierarchy(t)
	child := exec.Command("sleep", "1h")
	must(t, child.Start())
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	process := collector.Process{PID: child.Process.Pid, Memory: 1000, Busy: 10}
	w := newWorld(t, []string{"GPU-0"})
	f := func(group string, want User) {
		t.Helper()
		dir := filepath.Join(mount, expand.Replace(group))
		must(t, os.MkdirAll(dir, 0o755))
		must(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(process.PID)), 0))
		w.client.locations, w.client.pidSpace = newLocations("/proc"), "" // a process that moves is seen late
		w.sample(0, 0, 1, process)
		want.Processes, want.SM, want.Memory = 1, 10, 1000
		t.Log(group)
		w.wants(w.look(), one(want))
	}
	f(own+"/kubepods/burstable/pod<UID-A>/<CTR-A>", User{PodUID: uidA, ContainerID: ctrA})
	f(own+"/kubepods.slice/kubepods-pod<UID_B>.slice/cri-containerd-<CTR-B>.scope/init.scope", User{PodUID: uidB, ContainerID: ctrB})
	f("slurm_"+own+"/uid_0/job_42/step_0/task_0", User{Job: "42"})
	f(own+"/system.slice/slurmstepd.scope/job_42/step_0/user/task_0", User{}) // not where slurmd makes them
	f(own, User{})
}

// writableHierarchy returns where a hierarchy of control groups is mounted that we may change, and a group in it for
// this test, or skips. The groups of the test are removed at its end.
func writableHierarchy(t *testing.T) (mount, own string) {
	t.Helper()
	file, err := os.ReadFile("/proc/self/mounts")
	must(t, err)
	for line := range strings.Lines(string(file)) {
		f := strings.Fields(line)
		if len(f) < 4 || f[2] != "cgroup2" && (f[2] != "cgroup" || !strings.Contains(f[3], "name=systemd")) {
			continue
		}
		// Another run of this test may be under way.
		if probe, err := os.MkdirTemp(f[1], "warpgauge-test-"); err == nil { //nolint:usetesting // a control group is no temporary directory
			own := filepath.Base(probe)
			t.Cleanup(func() { removeGroups(t, probe); removeGroups(t, filepath.Join(f[1], "slurm_"+own)) })
			return f[1], own
		}
	}
	t.Skip("this takes a hierarchy of control groups that may be changed: be root, outside of containers")
	return "", ""
}

// removeGroups removes a control group with those in it; their files cannot be removed.
func removeGroups(t *testing.T, dir string) {
	entries, _ := os.ReadDir(dir) // it may not exist
	for _, e := range entries {
		if e.IsDir() {
			removeGroups(t, filepath.Join(dir, e.Name()))
		}
	}
	if err := os.Remove(dir); err != nil && !os.IsNotExist(err) {
		t.Errorf("remove a control group of this test: %v", err)
	}
}
