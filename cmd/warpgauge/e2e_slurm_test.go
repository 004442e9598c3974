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

	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
)

// TestE2ESlurm runs jobs on a real Slurm with our prolog and epilog, and looks for
// them on the exporter's page. Slurm's GPU 0 is the exporter's GPU 1, and the
// other way round.
func TestE2ESlurm(t *testing.T) {
	t.Parallel()
	requireSlurm(t)
	dir := t.TempDir()
	jobs := filepath.Join(dir, "jobs")
	e := serve(t, build(t), "--collect-interval=100", "--hpc-job-mapping-dir="+jobs)
	eventually.OK(t, "what is missing is told", func() error {
		return e.scrape(t, acceptText).want(0, "warpgauge_mapping_up", "mapping", "hpc_jobs")
	})
	s := startSlurm(t, dir, jobs)
	e.wantJobs(t, "no job yet", nil)

	one := s.submit(t, "--gres=gpu:1")
	e.wantJobs(t, "a job with one GPU", map[string][]string{"1": {one}})
	two := s.submit(t, "--gres=gpu:2") // waits for the first
	none := s.submit(t)
	s.awaitJob(t, none, "RUNNING")
	e.wantJobs(t, "a job without GPUs", map[string][]string{"1": {one}})
	s.run(t, "scancel", one)
	e.wantJobs(t, "one job was cancelled, the next has both GPUs", map[string][]string{"0": {two}, "1": {two}})
	s.end(t, two)
	e.wantJobs(t, "it ended", nil)

	one = s.submit(t, "--gres=gpu:1")
	s.awaitJob(t, one, "RUNNING")
	first := s.submit(t, "--gres=shard:1")
	second := s.submit(t, "--gres=shard:1")
	e.wantJobs(t, "two jobs share a GPU", map[string][]string{"0": {first, second}, "1": {one}})
	s.end(t, first)
	e.wantJobs(t, "one of the two ended", map[string][]string{"0": {second}, "1": {one}})
	s.run(t, "scontrol", "requeuehold", one)
	e.wantJobs(t, "another was requeued", map[string][]string{"0": {second}})

	write(t, filepath.Join(jobs, "5"), "999999\n")
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

	if left, err := filepath.Glob(filepath.Join(jobs, "[0-9]*")); err != nil || len(left) > 0 {
		t.Errorf("files left: %q %v", left, err)
	}
	eventually.OK(t, "a healthy mapping", func() error {
		return e.scrape(t, acceptText).want(1, "warpgauge_mapping_up", "mapping", "hpc_jobs")
	})
}

// wantJobs waits until the jobs of each GPU are those on the page, and checks that
// a GPU has either one series per job, or one without.
func (e *exporter) wantJobs(t *testing.T, when string, want map[string][]string) {
	t.Helper()
	eventually.OK(t, when, func() error {
		got, plain := map[string][]string{}, 0
		for _, s := range e.scrape(t, acceptText).family("DCGM_FI_DEV_GPU_TEMP") {
			if job := s.get("hpc_job"); job != "" {
				got[s.get("gpu")] = append(got[s.get("gpu")], job)
			} else {
				plain++
			}
		}
		for _, jobs := range got {
			slices.Sort(jobs)
		}
		if want == nil {
			want = map[string][]string{}
		}
		if diff := cmp.Diff(want, got); diff != "" {
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
	dir    string
	script string // prolog and epilog
	pid    string // of a process in its namespaces
}

// requireSlurm ends the test where there is no Slurm or no right to make namespaces.
func requireSlurm(t *testing.T) {
	t.Helper()
	missing := func() error {
		for _, name := range []string{"slurmctld", "slurmd", "munged", "sbatch", "nsenter", "ip"} {
			if _, err := exec.LookPath(name); err != nil {
				return err
			}
		}
		if out, err := exec.Command("unshare", slurmNamespaces("true")...).CombinedOutput(); err != nil {
			return fmt.Errorf("unshare: %w: %s", err, out)
		}
		return nil
	}()
	if missing != nil {
		programtest.Missing(t, "slurm", "it cannot run here: %v", missing)
	}
}

// slurmNamespaces are the arguments of unshare for a command that leaves the machine
// as it is, and whose end is that of all its children.
func slurmNamespaces(command ...string) []string {
	return append([]string{"--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child"}, command...)
}

var inside = regexp.MustCompile(`(?m)^pid (\d+)$`)

// startSlurm starts one, with a health check if there is one.
func startSlurm(t *testing.T, dir, jobs string, health ...string) *slurm {
	t.Helper()
	script, err := filepath.Abs("../../deploy/slurm/warpgauge-jobs")
	must(t, err)
	s := &slurm{dir: dir, script: script}
	s.set(t, "WARPGAUGE_JOB_DIR="+jobs, "WARPGAUGE_GPU_MAP="+filepath.Join(dir, "gpus"))
	s.Process = launch(t, "unshare", slurmNamespaces(append([]string{"testdata/slurm-node", dir, script}, health...)...)...)
	s.Await(t, "the namespaces", func() error {
		m := inside.FindStringSubmatch(s.Output())
		if m == nil {
			return errors.New("no pid in the output")
		}
		s.pid = m[1]
		return nil
	})
	// The end of this process, the first of its namespace, is that of all others;
	// unshare then ends by itself.
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

// set adds to the script's settings.
func (s *slurm) set(t *testing.T, lines ...string) {
	t.Helper()
	path := filepath.Join(s.dir, "settings")
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	write(t, path, string(before)+strings.Join(lines, "\n")+"\n")
}

// try runs a command inside.
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

// submit starts a job that lasts until end, or until it is cancelled.
func (s *slurm) submit(t *testing.T, resources ...string) (id string) {
	t.Helper()
	args := append([]string{"sbatch", "--parsable", "--ntasks=1", "--output=" + s.dir + "/out/%j"}, resources...)
	return s.run(t, append(args, `--wrap=until [ -e `+s.dir+`/out/$SLURM_JOB_ID.end ]; do sleep 0.1; done`)...)
}

// end lets a job come to its own end.
func (s *slurm) end(t *testing.T, id string) {
	t.Helper()
	write(t, filepath.Join(s.dir, "out", id+".end"), "")
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
