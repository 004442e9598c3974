package owner

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

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
	end := func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}
	t.Cleanup(end)

	w := newWorld(t, []string{"GPU-0"})
	w.client = NewProcesses(&w.board, func() {}, zap.NewNop())
	look := func(list ...collector.Process) DeviceUse {
		w.now = time.Now()
		w.sample(0, 0, len(list), list...)
		w.rings[0].Append(w.now.UnixNano(), w.stamps[0], w.rows[0])
		w.client.poll(time.Now())
		return w.client.Snapshot().Devices["GPU-0"]
	}
	process := collector.Process{PID: child.Process.Pid, Memory: 1000, Busy: 10}
	f := func(group string, want User) {
		t.Helper()
		dir := filepath.Join(mount, expand.Replace(group))
		must(t, os.MkdirAll(dir, 0o755))
		must(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(process.PID)), 0))
		w.client.locations = newLocations("/proc") // a process that moves is seen late
		want.Processes, want.SM, want.Memory = 1, 10, 1000
		if got := look(process); !got.Complete || len(got.Users) != 1 || got.Users[0] != want {
			t.Errorf("%s: got %+v, want %+v", group, got, want)
		}
	}
	f(own+"/kubepods/burstable/pod<UID-A>/<CTR-A>", User{PodUID: uidA, ContainerID: ctrA})
	f(own+"/kubepods.slice/kubepods-pod<UID_B>.slice/cri-containerd-<CTR-B>.scope/init.scope", User{PodUID: uidB, ContainerID: ctrB})
	f("slurm_"+own+"/uid_0/job_42/step_0/task_0", User{Job: "42"})
	f(own+"/system.slice/slurmstepd.scope/job_42/step_0/user/task_0", User{}) // not where slurmd makes them
	f(own, User{})

	end()
	if got := look(process); !got.Complete || len(got.Users) != 1 {
		t.Errorf("after its end, listed still: %+v, want what was known of it", got)
	}
	if got := look(); !got.Complete || len(got.Users) != 0 {
		t.Errorf("after its end: %+v", got)
	}
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
