// Package slurm holds the files with which a Slurm node reports its jobs to warpgauge. The tests run the script as
// slurmd does, with an almost empty environment and fake programs for Slurm and NVIDIA.
package slurm

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
)

var must = testkit.Must

// node is a machine with a fake Slurm.
type node struct {
	t      *testing.T
	root   string // stands for /
	script string
}

func newNode(t *testing.T) *node {
	t.Helper()
	programtest.Find(t, "bash")
	n := &node{t: t, root: t.TempDir(), script: testkit.Get(filepath.Abs("warpgauge-jobs"))(t)}
	n.file("proc/sys/kernel/random/boot_id", "boot-1\n")
	n.file("config", fmt.Sprintf("WARPGAUGE_JOB_DIR=%[1]s/jobs\nWARPGAUGE_GPU_MAP=%[1]s/run/map\nWARPGAUGE_GPU_TABLE=%[1]s/table\nPATH=%[1]s/bin:$PATH\n", n.root))
	n.program("logger", `printf '%s\n' "$*" >>"`+n.root+`/log"`)
	n.program("slurmd", "exit 1")
	n.program("nvidia-smi", "exit 9")
	n.program("scontrol", "exit 1")
	n.program("squeue", "exit 1")
	return n
}

// file writes a file below the root.
func (n *node) file(name, text string) {
	n.t.Helper()
	path := filepath.Join(n.root, name)
	must(n.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(n.t, os.WriteFile(path, []byte(text), 0o644))
}

func (n *node) program(name, script string) {
	n.t.Helper()
	n.file("bin/"+name, "#!/bin/bash\n"+script+"\n")
	must(n.t, os.Chmod(filepath.Join(n.root, "bin", name), 0o755))
}

func (n *node) set(line string) {
	n.t.Helper()
	path := filepath.Join(n.root, "config")
	text := testkit.Get(os.ReadFile(path))(n.t)
	must(n.t, os.WriteFile(path, []byte(string(text)+line+"\n"), 0o644))
}

// run runs the script with these variables and no others.
func (n *node) run(args []string, env ...string) (code int, stderr string) {
	n.t.Helper()
	cmd := exec.CommandContext(n.t.Context(), n.script, args...)
	cmd.Env = append([]string{"WARPGAUGE_ROOT=" + n.root, "WARPGAUGE_SLURM_CONFIG=" + n.root + "/config"}, env...)
	cmd.Dir = "/"
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	_ = cmd.Run()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // as slurmd does, when the script has ended
	testkit.Equal(n.t, fmt.Sprintf("%v: standard output, which Slurm would read", args), "", out.String())
	testkit.Lacks(n.t, fmt.Sprint(args, env), err.String(), "unbound variable", "syntax error", "command not found")
	return cmd.ProcessState.ExitCode(), err.String()
}

// hook runs the script as slurmd does. The job must be allowed to run.
func (n *node) hook(context, job string, more ...string) string {
	n.t.Helper()
	code, text := n.run(nil, append([]string{"SLURM_SCRIPT_CONTEXT=" + context, "SLURM_JOB_ID=" + job}, more...)...)
	testkit.Equal(n.t, context+" of job "+job+": exit code: "+text, 0, code)
	return text
}

func (n *node) prolog(job, gpus string, more ...string) string {
	n.t.Helper()
	if gpus != "" {
		more = append(more, "SLURM_JOB_GPUS="+gpus)
	}
	return n.hook("prolog_slurmd", job, more...)
}

func (n *node) epilog(job string, more ...string) string {
	n.t.Helper()
	return n.hook("epilog_slurmd", job, more...)
}

// jobs returns the job files by name, with their lines joined by blanks.
func (n *node) jobs() map[string]string {
	n.t.Helper()
	out := map[string]string{}
	entries, _ := os.ReadDir(filepath.Join(n.root, "jobs")) // there may be none
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			testkit.Equal(n.t, "left behind: "+e.Name(), false, strings.HasSuffix(e.Name(), ".tmp"))
			continue
		}
		text := testkit.Get(os.ReadFile(filepath.Join(n.root, "jobs", e.Name())))(n.t)
		testkit.Equal(n.t, "the end of "+e.Name(), "\n", string(text[max(len(text)-1, 0):]))
		testkit.Equal(n.t, "mode of "+e.Name()+", which the exporter must be able to read", os.FileMode(0o644), testkit.Get(e.Info())(n.t).Mode().Perm())
		out[e.Name()] = strings.Join(strings.Fields(string(text)), " ")
	}
	return out
}

func (n *node) want(when string, want map[string]string) {
	n.t.Helper()
	testkit.Equal(n.t, when, want, n.jobs())
}

func TestJobs(t *testing.T) {
	n := newNode(t)
	n.epilog("7") // a job from before the installation
	n.want("nothing yet", map[string]string{})
	n.prolog("17", "0")
	n.prolog("18", "1,2")
	n.want("two jobs", map[string]string{"0": "17", "1": "18", "2": "18"})
	n.prolog("19", "") // a job without GPUs
	n.prolog("17", "0")
	n.want("requeued on the same node, and a job without GPUs", map[string]string{"0": "17", "1": "18", "2": "18"})
	n.prolog("1", "2")
	n.prolog("187", "2")
	n.want("three share GPU 2", map[string]string{"0": "17", "1": "18", "2": "18 1 187"})
	n.epilog("18", "SLURM_JOB_GPUS=1,2")
	n.epilog("19")
	n.want("only its own lines go", map[string]string{"0": "17", "2": "1 187"})
	n.epilog("187") // after a restart of slurmd the GPUs may be unknown
	n.epilog("1")
	n.epilog("1")
	n.epilog("17")
	n.want("all gone", map[string]string{})
}

// TestAbout: the file of a job's user and partition.
func TestAbout(t *testing.T) {
	n := newNode(t)
	n.set("WARPGAUGE_JOB_ID=array")
	about := func(when string, want ...string) {
		t.Helper()
		var got []string
		for _, p := range testkit.Get(filepath.Glob(filepath.Join(n.root, "jobs", ".job-*")))(t) {
			text := testkit.Get(os.ReadFile(p))(t)
			got = append(got, filepath.Base(p)+": "+strings.Join(strings.Fields(string(text)), " "))
		}
		testkit.Equal(t, when, want, got)
	}
	n.prolog("17", "0", "SLURM_JOB_USER=anna", "SLURM_JOB_UID=1007", "SLURM_JOB_PARTITION=gpu", "SLURM_CLUSTER_NAME=c1")
	n.prolog("18", "0,1", "SLURM_ARRAY_JOB_ID=15", "SLURM_ARRAY_TASK_ID=3", "SLURM_JOB_USER=bert")
	n.want("job files have ids alone", map[string]string{"0": "17 15_3", "1": "15_3"})
	about("two jobs", ".job-15_3: user=bert uid= partition= cluster=", ".job-17: user=anna uid=1007 partition=gpu cluster=c1")
	n.epilog("18")
	about("one has ended", ".job-17: user=anna uid=1007 partition=gpu cluster=c1")
	n.program("squeue", "true")
	n.run([]string{"clean"})
	about("cleaned")
	n.prolog("19", "0")
	n.file("proc/sys/kernel/random/boot_id", "boot-2\n")
	n.prolog("20", "0", "SLURM_JOB_USER=cleo")
	n.want("after a reboot, whatever file system it lies on", map[string]string{"0": "20"})
	about("after a reboot", ".job-20: user=cleo uid= partition= cluster=")
}

// TestAtTheSameTime starts and ends many jobs on one GPU concurrently.
func TestAtTheSameTime(t *testing.T) {
	n := newNode(t)
	n.file("table", "0 0\n1 3.0\n")
	at := func(f func(job string)) {
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() { f(fmt.Sprint(100 + i)) })
		}
		wg.Wait()
	}
	at(func(job string) { n.prolog(job, "0,1") })
	for name, text := range n.jobs() {
		testkit.Equal(t, "jobs in "+name, 12, len(strings.Fields(text)))
	}
	at(func(job string) {
		if job >= "106" {
			n.epilog(job)
		} else {
			n.prolog("2"+job, "1")
		}
	})
	for name, want := range map[string]int{"0": 6, "3.0": 12} {
		testkit.Equal(t, "jobs in "+name, want, len(strings.Fields(n.jobs()[name])))
	}
}

// TestClean removes jobs whose epilog never ran.
func TestClean(t *testing.T) {
	n := newNode(t)
	n.prolog("17", "0")
	n.prolog("18", "0")
	n.prolog("20", "1")
	if code, _ := n.run([]string{"clean"}); code == 0 {
		t.Error("clean succeeds although squeue fails")
	}
	n.want("squeue does not answer", map[string]string{"0": "17 18", "1": "20"})
	n.program("squeue", `[[ "$*" == *"-w node7"* ]] && echo "18 15_3"`)
	if code, text := n.run([]string{"clean"}, "SLURMD_NODENAME=node7"); code != 0 || !strings.Contains(text, "17 20") {
		t.Errorf("clean: exit code %d: %s", code, text)
	}
	n.want("cleaned", map[string]string{"0": "18"})
}

func TestArrays(t *testing.T) {
	n := newNode(t)
	n.prolog("17", "0", "SLURM_ARRAY_JOB_ID=15", "SLURM_ARRAY_TASK_ID=3")
	n.want("by default each task has its job id", map[string]string{"0": "17"})
	n.epilog("17")
	n.set("WARPGAUGE_JOB_ID=array")
	n.prolog("17", "0", "SLURM_ARRAY_JOB_ID=15", "SLURM_ARRAY_TASK_ID=3")
	n.program("scontrol", `echo "JobId=18 ArrayJobId=15 ArrayTaskId=4 JobName=x"`)
	n.prolog("18", "0,1")
	n.program("scontrol", `echo "JobId=19 JobName=x"`)
	n.prolog("19", "1")
	n.want("array", map[string]string{"0": "15_3 15_4", "1": "15_4 19"})
	n.program("scontrol", "exit 1") // scontrol does not know the jobs any more
	for _, job := range []string{"17", "18", "19"} {
		n.epilog(job)
	}
	n.want("ended", map[string]string{})
	testkit.Equal(t, "left behind", []string(nil), testkit.Get(filepath.Glob(filepath.Join(n.root, "jobs", ".id-*")))(t))
}

// TestNeverFailsAJob: after any error the script logs it and the job runs, unless strict mode is on.
func TestNeverFailsAJob(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(n *node)
		env   []string
		says  string
	}{
		"directory cannot be made": {func(n *node) { n.file("jobs", "") }, []string{"SLURM_JOB_ID=17", "SLURM_JOB_GPUS=0"}, "cannot make"},
		"no job":                   {nil, []string{"SLURM_JOB_GPUS=0"}, "no SLURM_JOB_ID"},
		"strange job":              {nil, []string{"SLURM_JOB_ID=17;reboot", "SLURM_JOB_GPUS=0"}, "no SLURM_JOB_ID"},
		"strange GPUs":             {nil, []string{"SLURM_JOB_ID=17", "SLURM_JOB_GPUS=../../etc/passwd"}, "no GPU numbers"},
		"GPUs by UUID":             {nil, []string{"SLURM_JOB_ID=17", "CUDA_VISIBLE_DEVICES=MIG-8c1f6f3a"}, "no GPU numbers"},
		"no context":               {nil, []string{"SLURM_SCRIPT_CONTEXT=", "SLURM_JOB_ID=17", "SLURM_JOB_GPUS=0"}, "usage"},
		"a directory in the way":   {func(n *node) { n.file("jobs/0/x", "") }, []string{"SLURM_JOB_ID=17", "SLURM_JOB_GPUS=0"}, "cannot write"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			if tt.spoil != nil {
				tt.spoil(n)
			}
			env := append([]string{"SLURM_SCRIPT_CONTEXT=prolog_slurmd"}, tt.env...)
			code, text := n.run(nil, env...)
			if code != 0 || !strings.Contains(text, tt.says) {
				t.Errorf("exit code %d, want 0, and %q: %s", code, tt.says, text)
			}
			testkit.Has(t, "log", n.text("log"), tt.says)
			n.set("WARPGAUGE_STRICT=1")
			if code, _ := n.run(nil, env...); code != 1 {
				t.Errorf("exit code %d in strict mode, want 1", code)
			}
		})
	}
}

// TestSettingsOfSomebodyElse: the script sources only files that the administrator owns.
func TestSettingsOfSomebodyElse(t *testing.T) {
	n := newNode(t)
	if err := os.Chown(filepath.Join(n.root, "config"), 65534, 65534); err != nil {
		t.Skip("files cannot be given away:", err)
	}
	// Without settings the script uses the default directory, which the test must not touch.
	code, text := n.run([]string{"nothing"})
	if code != 0 || !strings.Contains(text, "belongs to another user") {
		t.Errorf("exit code %d: %s", code, text)
	}
}

// TestReport: the epilog does not wait for the report of a job that had GPUs. The report is for root and the job's user.
func TestReport(t *testing.T) {
	n := newNode(t)
	must(t, os.Mkdir(n.root+"/reports", 0o700))
	n.set("WARPGAUGE_REPORT_DIR=" + n.root + "/reports\nWARPGAUGE_REPORT_FLAGS=--url=http://x")
	n.program("warpctl", `cd `+n.root+`; echo "$*" >>asked; until [[ -e ended ]]; do sleep 0.1; done; [[ $(wc -l <asked) == 1 ]] && exit 1; printf '{\n  "left": "x"\n}\n'`)
	n.program("setsid", `(sleep 0.3; PATH=${PATH#*:} exec setsid "${@:2}") &`) // a machine that is slow between fork and setsid
	n.prolog("17", "0")
	n.epilog("17", fmt.Sprint("SLURM_JOB_UID=", os.Getuid()), "SLURMD_NODENAME=node7")
	n.epilog("18") // without GPUs
	n.file("ended", "")
	eventually.True(t, "the report", func() bool { return n.text("reports/17.node7.json") == "{\n  \"left\": \"x\"\n}" })
	testkit.Equal(t, "its mode", os.FileMode(0o400), testkit.Get(os.Stat(n.root+"/reports/17.node7.json"))(t).Mode())
	testkit.Equal(t, "calls", strings.Repeat("\njob job:17 --output=json --url=http://x", 2), "\n"+n.text("asked"))
}

// TestAdminComment: on the head node the judgement becomes the AdminComment of a job with GPUs, unless it has another one.
func TestAdminComment(t *testing.T) {
	const wrote = "-i update job where jobid=7_3 set AdminComment=warpgauge: All well."
	for _, c := range []struct{ record, sacct, want string }{
		{"TresPerNode=gres:gpu:1", "", wrote},
		{"TRES=cpu=1,gres/gpu=1", "warpgauge: x", wrote},
		{"TresPerJob=gres:shard:1", "JS1:H4sI", ""},
		{"TRES=cpu=1", "", ""},
	} {
		n := newNode(t)
		n.set("WARPGAUGE_JOB_ID=array")
		n.program("sacct", `[[ "$*" == "-X -n -P -j 7_3 -o AdminComment" ]] && echo "`+c.sacct+`"`)
		n.program("sacctmgr", `cd `+n.root+`; [[ -e early ]] && echo $* >wrote; echo >early; [[ -e wrote ]]`)
		n.program("scontrol", `case "$*" in "-o show job 7_3") echo "JobId=9 `+c.record+`";; "show hostnames n[1-2]") echo n1 n2;; *) exit 1; esac`)
		n.program("warpctl", `[[ "$1 $2" == "job job:7_3" && $(<${4#*=}) == $'http://n1:9400\nhttp://n2:9400' ]] && printf '{\n  "left": "x",\n  "judgement": "All well."\n}'`)
		n.run([]string{"comment"}, "SLURM_JOB_ID=9", "SLURM_ARRAY_JOB_ID=7", "SLURM_ARRAY_TASK_ID=3", "SLURM_JOB_NODELIST=n[1-2]")
		testkit.Equal(t, c.record+", "+c.sacct, c.want, n.text("wrote"))
	}
}

// gpus creates a driver's files: PCI address by minor number.
func (n *node) gpus(address ...string) {
	n.t.Helper()
	for minor, a := range address {
		n.file("proc/driver/nvidia/gpus/"+a+"/information", fmt.Sprintf(
			"Model: \t\t NVIDIA H200\nIRQ:   \t\t 42\nGPU UUID: \t GPU-%d\nBus Location: \t %s\nDevice Minor: \t %d\nGPU Excluded:\t No\n", minor, a, minor))
	}
}

func (n *node) slurmd(lines ...string) {
	var out strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&out, "slurmd-node7: Gres Name=%s (null)\n", l)
	}
	n.file("slurmd.out", out.String())
	n.program("slurmd", `[[ $1 == -G ]] && cat "`+n.root+`/slurmd.out" >&2`)
}

// TestGPUNumbers maps Slurm's GPU number to the exporter's, in every supported way.
func TestGPUNumbers(t *testing.T) {
	for name, tt := range map[string]struct {
		lay  func(n *node)
		want map[string]string // job file by Slurm's number; empty: none
	}{
		"nothing is known": {func(*node) {}, map[string]string{"0": "0", "3": "3"}},
		"order of gres.conf is not that of the devices": {func(n *node) {
			n.gpus("0000:07:00.0", "0000:0f:00.0", "0000:47:00.0")
			n.slurmd("shard Type=a Count=8 Index=2 ID=1918986455 File=/dev/nvidia2", "gpu Type=a Count=1 Index=2 ID=7696487 File=/dev/nvidia2",
				"gpu Type=a Count=2 Index=0 ID=7696487 File=/dev/nvidia[0-1]")
		}, map[string]string{"0": "2", "1": "0", "2": "1"}},
		"minor numbers are not in order of PCI addresses": {func(n *node) {
			n.gpus("0000:47:00.0", "10000:01:00.0", "0000:07:00.0")
			n.slurmd("gpu Type=(null) Count=3 Index=0 ID=7696487 File=/dev/nvidia[0,1-2]")
		}, map[string]string{"0": "1", "1": "2", "2": "0"}},
		"NVML's order is what nvidia-smi says": {func(n *node) {
			n.gpus("0000:07:00.0", "0000:0f:00.0", "0000:47:00.0")
			n.program("nvidia-smi", `[[ $1 == --query-gpu=index,pci.bus_id ]] && printf '0, 00000000:47:00.0\n1, 00000000:07:00.0\n'`)
			n.slurmd("gpu Type=h200 Count=3 Index=0 ID=7696487 File=/dev/nvidia[0-2]")
		}, map[string]string{"0": "1", "1": "", "2": "0"}},
		"MIG": {func(n *node) {
			n.gpus("0000:47:00.0", "0000:07:00.0")
			n.file("proc/driver/nvidia-caps/mig-minors", "config 1\nmonitor 2\ngpu0/gi7/access 66\ngpu0/gi7/ci0/access 67\ngpu0/gi9/access 84\ngpu0/gi9/ci0/access 85\n")
			n.slurmd("gpu Type=h200 Count=1 Index=1 ID=7696487 File=/dev/nvidia1",
				"gpu Type=1g Count=1 Index=67 ID=7696487 File=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap[66-67]",
				"gpu Type=1g Count=1 Index=85 ID=7696487 File=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap84,/dev/nvidia-caps/nvidia-cap85",
				"gpu Type=1g Count=1 Index=85 ID=7696487 File=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap99")
		}, map[string]string{"0": "0", "1": "1.7", "2": "1.9", "3": ""}},
		"AMD": {func(n *node) {
			for render, a := range map[string]string{"renderD128": "0000:c1:00.0", "renderD129": "0000:05:00.0"} {
				n.file("sys/devices/"+a+"/vendor", "0x1002\n")
				must(n.t, os.MkdirAll(filepath.Join(n.root, "sys/class/drm", render), 0o755))
				must(n.t, os.Symlink("../../../devices/"+a, filepath.Join(n.root, "sys/class/drm", render, "device")))
				must(n.t, os.MkdirAll(filepath.Join(n.root, "sys/bus/pci/drivers/amdgpu"), 0o755))
				must(n.t, os.Symlink("../../../../devices/"+a, filepath.Join(n.root, "sys/bus/pci/drivers/amdgpu", a)))
			}
			n.slurmd("gpu Type=(null) Count=2 Index=128 ID=7696487 File=/dev/dri/renderD[128-129]")
		}, map[string]string{"0": "1", "1": "0"}},
		"the administrator's table goes first": {func(n *node) {
			n.slurmd("gpu Type=a Count=2 Index=0 ID=7696487 File=/dev/nvidia[0-1]")
			n.file("table", "# mine\n0 5\n1 3.0\n2 -\nx y\n3 ../x\n")
		}, map[string]string{"0": "5", "1": "3.0", "2": "", "3": "3"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			tt.lay(n)
			want := map[string]string{}
			for number, file := range tt.want {
				text := n.prolog("1"+number, number)
				if file != "" {
					want[file] = "1" + number
				} else if !strings.Contains(text, "none that can be told") {
					t.Errorf("GPU %s: the log does not mention it: %s", number, text)
				}
			}
			n.want("mapped", want)
		})
	}
}

// TestMapIsMadeOnce: the script makes the map once, and again after Slurm's configuration has changed.
func TestMapIsMadeOnce(t *testing.T) {
	n := newNode(t)
	n.file("etc/slurm.conf", "")
	env := "SLURM_CONF=" + n.root + "/etc/slurm.conf"
	n.slurmd("gpu Type=a Count=2 Index=0 ID=7696487 File=/dev/nvidia[2-3]")
	n.prolog("17", "0", env)
	n.slurmd("gpu Type=a Count=2 Index=0 ID=7696487 File=/dev/nvidia[6-7]")
	n.prolog("18", "1", env)
	n.want("once", map[string]string{"2": "17", "3": "18"})
	made := testkit.Get(os.Stat(filepath.Join(n.root, "run/map")))(t)
	later := made.ModTime().Add(1e9)
	n.file("etc/gres.conf", "")
	must(t, os.Chtimes(filepath.Join(n.root, "etc/gres.conf"), later, later))
	n.prolog("19", "0", env)
	n.want("again", map[string]string{"2": "17", "3": "18", "6": "19"})
	n.program("slurmd", "exit 1")
	if code, _ := n.run([]string{"map"}, env); code != 1 {
		t.Errorf("map: exit code %d although slurmd -G fails, want 1", code)
	}
	n.epilog("19")
	n.prolog("20", "1", env)
	n.want("the last map stays", map[string]string{"2": "17", "3": "18", "7": "20"})
}
