package owner

import (
	"bufio"
	"bytes"
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

// TestRealControlGroups puts a process into control groups of this machine and
// reads the real /proc.
func TestRealControlGroups(t *testing.T) {
	if own, _, err := newProcfs("/proc").self(); err != nil || own != firstPIDNamespace {
		t.Skipf("this takes the machine's PID namespace; ours is %q (%v)", own, err)
	}
	mount, own := writableHierarchy(t)
	child := exec.Command("cat") // it ends with its input
	input, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	end := func() {
		if !ended {
			ended = true
			_ = input.Close()
			_ = child.Wait()
		}
	}
	defer end()

	w := newWorld(t, []string{"GPU-0"})
	w.client = NewProcesses(&w.board, func() {}, zap.NewNop())
	look := func() DeviceUse {
		w.now = time.Now()
		w.sample(0, 0, 1, collector.Process{PID: child.Process.Pid, Memory: 1000, Busy: 10})
		return lookNow(w)
	}
	move := func(group string) {
		t.Helper()
		dir := filepath.Join(mount, expand.Replace(group))
		makeGroups(t, mount, dir)
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(child.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
		w.client.locations = newLocations("/proc") // a process that moves is seen late
	}
	t.Cleanup(end) // before the groups go
	f := func(group string, want User) {
		t.Helper()
		move(group)
		want.Processes, want.SM, want.Memory = 1, 10, 1000
		got := look()
		if !got.Complete || len(got.Users) != 1 || got.Users[0] != want {
			t.Errorf("%s: got %+v, want %+v", group, got, want)
		}
	}
	f(own+"/kubepods/burstable/pod<UID-A>/<CTR-A>", User{PodUID: uidA, ContainerID: ctrA})
	f(own+"/kubepods.slice/kubepods-pod<UID_B>.slice/cri-containerd-<CTR-B>.scope/init.scope", User{PodUID: uidB, ContainerID: ctrB})
	f("slurm_"+own+"/uid_0/job_42/step_0/task_0", User{Job: "42"})
	f(own+"/system.slice/slurmstepd.scope/job_42/step_0/user/task_0", User{}) // not where slurmd makes them
	f(own, User{})

	end()
	if got := look(); !got.Complete || len(got.Users) != 1 {
		t.Errorf("after its end, listed still: %+v, want what was known of it", got)
	}
	w.now = time.Now()
	w.sample(0, 0, 0)
	if got := lookNow(w); !got.Complete || len(got.Users) != 0 {
		t.Errorf("after its end: %+v", got)
	}
}

// lookNow polls the machine as it is.
func lookNow(w *world) DeviceUse {
	w.rings[0].Append(w.now.UnixNano(), w.stamps[0], w.rows[0])
	w.client.poll(time.Now())
	return w.client.Snapshot().Devices["GPU-0"]
}

// writableHierarchy returns where a hierarchy of control groups is mounted that
// we may change, and a group in it for this test, or skips.
func writableHierarchy(t *testing.T) (mount, own string) {
	t.Helper()
	file, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for s := bufio.NewScanner(bytes.NewReader(file)); s.Scan(); {
		f := strings.Fields(s.Text())
		if len(f) < 4 || f[2] != "cgroup2" && (f[2] != "cgroup" || !strings.Contains(f[3], "name=systemd")) {
			continue
		}
		// Another run of this test may be under way.
		if probe, err := os.MkdirTemp(f[1], "warpgauge-test-"); err == nil { //nolint:usetesting // a control group is no temporary directory
			t.Cleanup(func() {
				if err := os.Remove(probe); err != nil {
					t.Errorf("remove the control group of this test: %v", err)
				}
			})
			return f[1], filepath.Base(probe)
		}
	}
	t.Skip("this takes a hierarchy of control groups that may be changed: be root, outside of containers")
	return "", ""
}

// makeGroups makes a directory and those above it, and removes them in the end.
func makeGroups(t *testing.T, mount, dir string) {
	t.Helper()
	if dir == mount {
		return
	}
	if _, err := os.Stat(dir); err == nil {
		return
	}
	makeGroups(t, mount, filepath.Dir(dir))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Errorf("remove a control group of this test: %v", err)
		}
	})
}
