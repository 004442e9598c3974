package main_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
)

// TestE2ESlurm runs jobs on a real Slurm with our prolog and epilog, and expects them on the page.
// Slurm's GPU 0 is the exporter's GPU 1, and vice versa.
func TestE2ESlurm(t *testing.T) {
	t.Parallel()
	s := startSlurm(t)
	e := serve(t, build(t), "--collect-interval=100", "--hpc-job-mapping-dir="+s.jobs)
	e.wantJobs(t, "no job yet", nil)

	one := s.submit(t, "--gres=gpu:1")
	e.wantJobs(t, "a job with one GPU", map[string][]string{"1": {one}})
	two := s.submit(t, "--gres=gpu:2") // waits for the first job
	none := s.submit(t)
	s.awaitJob(t, none, "RUNNING")
	e.wantJobs(t, "a job without GPUs", map[string][]string{"1": {one}})
	s.run(t, "scancel", one)
	e.wantJobs(t, "one job was cancelled, the next has both GPUs", map[string][]string{"0": {two}, "1": {two}})
	write(t, filepath.Join(s.dir, "out", two+".end"), "")
	e.wantJobs(t, "it ended by itself", nil)

	one = s.submit(t, "--gres=gpu:1")
	s.awaitJob(t, one, "RUNNING")
	first, second := s.submit(t, "--gres=shard:1"), s.submit(t, "--gres=shard:1")
	e.wantJobs(t, "two jobs share a GPU", map[string][]string{"0": {first, second}, "1": {one}})
	s.run(t, "scancel", first)
	e.wantJobs(t, "one of the two ended", map[string][]string{"0": {second}, "1": {one}})
	s.run(t, "scontrol", "requeuehold", one)
	e.wantJobs(t, "another was requeued", map[string][]string{"0": {second}})

	write(t, filepath.Join(s.jobs, "5"), "999999\n")
	e.wantJobs(t, "an epilog never ran", map[string][]string{"0": {second}, "5": {"999999"}})
	s.run(t, s.script, "clean")
	e.wantJobs(t, "Slurm was asked", map[string][]string{"0": {second}})
	s.run(t, "scancel", one, second, none)
	e.wantJobs(t, "all gone", nil)

	s.set(t, "WARPGAUGE_JOB_ID=array")
	array := s.submit(t, "--gres=gpu:1", "--array=7")
	e.wantJobs(t, "a task of an array", map[string][]string{"1": {array + "_7"}})
	s.run(t, "scancel", array)
	e.wantJobs(t, "the array is gone", nil)

	if left, err := filepath.Glob(filepath.Join(s.jobs, "[0-9]*")); err != nil || len(left) > 0 {
		t.Errorf("files left: %q %v", left, err)
	}
	e.await(t, "a healthy mapping", is(1, "warpgauge_mapping_up", "mapping", "hpc_jobs"))
}

// TestE2ESlurmHealth: a real Slurm calls our HealthCheckProgram, which drains the node when a
// simulated GPU is lost.
func TestE2ESlurmHealth(t *testing.T) {
	t.Parallel()
	exe := build(t)
	check, err := filepath.Abs("../../deploy/slurm/warpgauge-health")
	must(t, err)
	lost := newTrouble(t)
	spec := faults(t, lost.fault("device: 2, kind: lost"))
	s := startSlurm(t, check)
	s.set(t, "WARPGAUGE_PROGRAM="+exe)
	s.checked(t, "no exporter is there", "IDLE", "")

	// start starts an exporter in Slurm's network.
	start := func() *exporter {
		t.Helper()
		e := serveBy(t, []string{"nsenter", "--target", s.pid, "--net", "--", exe}, spec, "--collect-interval=100", "--health-directory=")
		s.set(t, "WARPGAUGE_HEALTH_FLAGS=--url="+e.url)
		return e
	}
	// health waits until warpgauge health returns a code.
	health := func(e *exporter, code int) {
		t.Helper()
		eventually.OK(t, fmt.Sprintf("warpgauge health to end with %d", code), func() error {
			text, err := s.try(t, exe, "health", "--url="+e.url)
			got := 0
			var ended *exec.ExitError
			if errors.As(err, &ended) {
				got = ended.ExitCode()
			}
			if got != code {
				return fmt.Errorf("%d: %s", got, text)
			}
			return nil
		})
	}
	e := start()
	health(e, 0)
	s.checked(t, "all GPUs are healthy", "IDLE", "")

	lost.begin(t)
	const reason = "warpgauge: GPU 2 lost: reboot"
	s.awaitDrain(t)
	s.checked(t, "a GPU is lost", "IDLE+DRAIN", reason)
	_, before := s.node(t)
	s.checked(t, "a GPU is lost still", "IDLE+DRAIN", reason)
	if _, after := s.node(t); after != before {
		t.Errorf("drained a second time: %q, before %q", after, before)
	}

	s.run(t, "scontrol", "update", "NodeName=node1", "State=RESUME")
	s.awaitDrain(t) // the GPU is still lost
	s.checked(t, "resumed too early", "IDLE+DRAIN", reason)

	e.ends(t, syscall.SIGTERM)
	s.checked(t, "the exporter is gone", "IDLE+DRAIN", reason)
	lost.end(t)
	e = start() // the node was repaired
	health(e, 0)
	s.checked(t, "the fault is over: nothing resumes the node", "IDLE+DRAIN", reason)
	s.run(t, "scontrol", "update", "NodeName=node1", "State=RESUME")
	s.checked(t, "resumed by hand", "IDLE", "")

	s.run(t, "scontrol", "update", "NodeName=node1", "State=DRAIN", "Reason=new firmware")
	lost.begin(t)
	health(e, 1)
	s.checked(t, "drained by an operator before", "IDLE+DRAIN", "new firmware")
}

// wantJobs waits until the page has the jobs of each GPU. A GPU must have one series per job, or
// one without a job.
func (e *exporter) wantJobs(t *testing.T, when string, want map[string][]string) {
	t.Helper()
	e.await(t, when, func(p page) error {
		got, plain := map[string][]string{}, 0
		for _, s := range p.family("DCGM_FI_DEV_GPU_TEMP") {
			if job := s.get("hpc_job"); job != "" {
				got[s.get("gpu")] = append(got[s.get("gpu")], job)
			} else {
				plain++
			}
		}
		for _, jobs := range got {
			slices.Sort(jobs)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			return fmt.Errorf("jobs by GPU (-want +got):\n%s", diff)
		}
		if plain != 8-len(got) {
			return fmt.Errorf("%d GPUs without a job, want %d", plain, 8-len(got))
		}
		return nil
	})
}

// slurm is a cluster of one node.
type slurm struct {
	*programtest.Process
	dir, jobs string
	script    string // of prolog and epilog
	settings  string
	pid       string // a process in the cluster's namespaces
}

var inside = regexp.MustCompile(`(?m)^pid (\d+)$`)

// startSlurm starts a cluster, optionally with a health check. It skips the test without Slurm or without the right
// to create namespaces.
func startSlurm(t *testing.T, health ...string) *slurm {
	t.Helper()
	for _, name := range []string{"slurmctld", "slurmd", "munged", "sbatch", "nsenter", "ip"} {
		if _, err := exec.LookPath(name); err != nil {
			programtest.Missing(t, "slurm", "it cannot run here: %v", err)
		}
	}
	// Namespaces leave the machine unchanged and end with all their children.
	namespaces := []string{"--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child"}
	if out, err := exec.Command("unshare", append(namespaces, "true")...).CombinedOutput(); err != nil {
		programtest.Missing(t, "slurm", "it cannot run here: %v: %s", err, out)
	}
	script, err := filepath.Abs("../../deploy/slurm/warpgauge-jobs")
	must(t, err)
	s := &slurm{dir: t.TempDir(), script: script}
	s.jobs = filepath.Join(s.dir, "jobs")
	s.set(t, "WARPGAUGE_JOB_DIR="+s.jobs)
	s.set(t, "WARPGAUGE_GPU_MAP="+filepath.Join(s.dir, "gpus"))
	s.Process = launch(t, "unshare", slices.Concat(namespaces, []string{"testdata/slurm-node", s.dir, script}, health)...)
	s.Await(t, "the namespaces", func() error {
		m := inside.FindStringSubmatch(s.Output())
		if m == nil {
			return errors.New("no pid in the output")
		}
		s.pid = m[1]
		return nil
	})
	// When this first process of its namespace ends, the kernel ends all others; then unshare ends.
	t.Cleanup(func() {
		if pid, err := strconv.Atoi(s.pid); err == nil && syscall.Kill(pid, syscall.SIGKILL) == nil {
			<-s.Ended()
		}
	})
	eventually.OK(t, "the node to be idle", func() error {
		out, err := s.try(t, "sinfo", "-h", "-o", "%t")
		if err == nil && strings.TrimSpace(out) != "idle" {
			err = errors.New("not idle")
		}
		if err != nil {
			return fmt.Errorf("sinfo: %w: %s", err, out)
		}
		return nil
	})
	return s
}

// set adds a line to the script's settings.
func (s *slurm) set(t *testing.T, line string) {
	t.Helper()
	s.settings += line + "\n"
	write(t, filepath.Join(s.dir, "settings"), s.settings)
}

// try runs a command in the cluster.
func (s *slurm) try(t *testing.T, command ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--target", s.pid, "--mount", "--net", "--uts", "--ipc", "--pid", "--"}, command...)...)
	cmd.Env = append(cleanEnvironment(), "SLURM_CONF="+filepath.Join(s.dir, "slurm.conf"), "WARPGAUGE_SLURM_CONFIG="+filepath.Join(s.dir, "settings"))
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s *slurm) run(t *testing.T, command ...string) string {
	t.Helper()
	out, err := s.try(t, command...)
	if err != nil {
		t.Fatalf("%q: %v: %s", command, err, out)
	}
	return strings.TrimSpace(out)
}

// submit starts a job that lasts until end or its cancellation.
func (s *slurm) submit(t *testing.T, resources ...string) (id string) {
	t.Helper()
	args := append([]string{"sbatch", "--parsable", "--ntasks=1", "--output=" + s.dir + "/out/%j"}, resources...)
	return s.run(t, append(args, `--wrap=until [ -e `+s.dir+`/out/$SLURM_JOB_ID.end ]; do sleep 0.1; done`)...)
}

func (s *slurm) awaitJob(t *testing.T, id, state string) {
	t.Helper()
	eventually.OK(t, "job "+id+" to be "+state, func() error {
		if got := s.run(t, "squeue", "-h", "-j", id, "-o", "%T"); got != state {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
}

// checked waits for two complete health checks, and expects a node state and reason, without the reason's author and time.
func (s *slurm) checked(t *testing.T, when, state, reason string) {
	t.Helper()
	lines := func() int {
		text, err := os.ReadFile(filepath.Join(s.dir, "checks"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return strings.Count(string(text), "\n")
	}
	begin := lines() // one may be running: the second end from now belongs to a later start
	eventually.True(t, "Slurm to check the node's health", func() bool { return lines() >= begin+2 })
	gotState, gotReason := s.node(t)
	if got, _, _ := strings.Cut(gotReason, " ["); gotState != state || got != reason {
		t.Errorf("%s: the node is %s, %q, want %s, %q", when, gotState, gotReason, state, reason)
	}
}

var nodeLine = regexp.MustCompile(` State=(\S+)(?:.* Reason=(.*)$)?`)

// node returns Slurm's state of the node.
func (s *slurm) node(t *testing.T) (state, reason string) {
	t.Helper()
	text := s.run(t, "scontrol", "--oneliner", "show", "node", "node1")
	m := nodeLine.FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no state of the node: %s", text)
	}
	return m[1], m[2]
}

func (s *slurm) awaitDrain(t *testing.T) {
	t.Helper()
	eventually.True(t, "the node to be drained", func() bool {
		state, _ := s.node(t)
		return state == "IDLE+DRAIN"
	})
}
