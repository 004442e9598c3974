package main_test

import (
	"context"
	"encoding/json"
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
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"warpgauge/extensions/accounts/report"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
	"warpgauge/internal/testkit/programtest/prometheustest"
)

// TestE2ESlurm runs jobs on a real Slurm with our prolog, epilog and HealthCheckProgram. It expects the jobs on the page,
// and that a lost GPU drains the node. Slurm's GPU 0 is the exporter's GPU 1, and vice versa. The tests of deploy/slurm cover
// what the scripts do otherwise.
func TestE2ESlurm(t *testing.T) {
	t.Parallel()
	exe := build(t)
	check := testkit.Get(filepath.Abs("../../deploy/slurm/warpgauge-health"))(t)
	s := startSlurm(t, check)
	s.set(t, "WARPGAUGE_PROGRAM="+exe)
	s.checked(t, "no exporter is there", "IDLE", "")
	e := serve(t, exe, "--collect-interval=100", "--hpc-job-mapping-dir="+s.jobs)
	e.wantJobs(t, "no job yet", nil)

	one := s.submit(t, "--gres=gpu:1")
	e.wantJobs(t, "a job with one GPU", map[string][]string{"1": {one}})
	two := s.submit(t, "--gres=gpu:2") // waits for the first job
	s.run(t, "scancel", one)
	e.wantJobs(t, "one job was cancelled, the next has both GPUs", map[string][]string{"0": {two}, "1": {two}})
	write(t, filepath.Join(s.dir, "out", two+".end"), "")
	e.wantJobs(t, "it ended by itself", nil)
	first, second := s.submit(t, "--gres=shard:1"), s.submit(t, "--gres=shard:1")
	e.wantJobs(t, "two jobs share a GPU", map[string][]string{"1": {first, second}})
	s.run(t, "scancel", first)
	s.run(t, "scontrol", "requeuehold", second)
	e.wantJobs(t, "one ended, the other was requeued", nil)
	s.run(t, "scancel", second)
	testkit.Equal(t, "files left", []string(nil), testkit.Get(filepath.Glob(filepath.Join(s.jobs, "[0-9]*")))(t))
	e.await(t, "a healthy mapping", is(1, "warpgauge_mapping_up", "mapping", "hpc_jobs"))

	lost := newTrouble(t)
	spec := faults(t, lost.fault("device: 2, kind: lost"))
	e = s.healthy(t, exe, spec)
	s.checked(t, "all GPUs are healthy", "IDLE", "")
	s.reports(t, e)
	lost.begin(t)
	const reason = "warpgauge: GPU 2 lost: reboot"
	s.awaitDrain(t)
	s.checked(t, "a GPU is lost", "IDLE+DRAIN", reason)
	e.ends(t, syscall.SIGTERM)
	lost.end(t)
	s.healthy(t, exe, spec)
	s.checked(t, "the fault is over: nothing resumes the node", "IDLE+DRAIN", reason)
	s.run(t, "scontrol", "update", "NodeName=node1", "State=RESUME")
	s.checked(t, "resumed by hand", "IDLE", "")
}

// jobstatsQueries are the queries for GPUs in jobstats.py of PrincetonUniversity/jobstats at dfc9aa0, by the name of their result
// in its JSON: with GPU_EXPORTER_JOBID and without.
var jobstatsQueries = map[string][2]string{
	"gpu_total_memory": {"max_over_time(nvidia_gpu_memory_total_bytes{cluster='{cluster}',jobid='{jobid}'}[{diff}s:])", "max_over_time((nvidia_gpu_memory_total_bytes{cluster='{cluster}'} and nvidia_gpu_jobId == {jobid})[{diff}s:])"},
	"gpu_used_memory":  {"max_over_time(nvidia_gpu_memory_used_bytes{cluster='{cluster}',jobid='{jobid}'}[{diff}s:])", "max_over_time((nvidia_gpu_memory_used_bytes{cluster='{cluster}'} and nvidia_gpu_jobId == {jobid})[{diff}s:])"},
	"gpu_utilization":  {"avg_over_time((nvidia_gpu_duty_cycle{cluster='{cluster}',jobid='{jobid}'} or (nvidia_gpu_graphics_util_percent{cluster='{cluster}',jobid='{jobid}'} * 100))[{diff}s:])", "avg_over_time(((nvidia_gpu_duty_cycle{cluster='{cluster}'} or (nvidia_gpu_graphics_util_percent{cluster='{cluster}'} * 100)) and nvidia_gpu_jobId == {jobid})[{diff}s:])"},
}

// TestE2EJobstats: jobstats' queries through a real Prometheus show what a job of a real Slurm has used.
func TestE2EJobstats(t *testing.T) {
	t.Parallel()
	prometheustest.Find(t)
	s := startSlurm(t, "/bin/true")
	var readings []string
	for gpu, util := range []int{80, 40} {
		for field, v := range map[string]int{"GPU_UTIL": util, "FB_USED": 1000 * (gpu + 1), "FB_TOTAL": 81920} {
			readings = append(readings, fmt.Sprintf("- {kind: value, device: %d, field: DCGM_FI_DEV_%s, value: %d}\n", gpu, field, v))
		}
	}
	e := serve(t, build(t), "--collect-interval=100", "--exporter-metrics=lean", "--hpc-job-mapping-dir="+s.jobs, "--accounts", "--account-names=jobstats", faults(t, readings...))
	prometheus := prometheustest.Start(t, fmt.Sprintf("global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nscrape_configs:\n- job_name: gpus\n  static_configs:\n  - {targets: [%q], labels: {cluster: test, instance: 'node1:9400'}}\n", strings.TrimPrefix(e.url, "http://")))
	prometheus.Await(t, "GPUs without a job", 8, `nvidia_gpu_duty_cycle{jobid="",userid=""}`)
	began, job := time.Now(), s.submit(t, "--gres=gpu:2")
	prometheus.Await(t, "ten samples of the job", 2, `count_over_time(nvidia_gpu_duty_cycle{jobid="`+job+`",userid="0"}[1m]) >= 10`)
	s.run(t, "scancel", job)
	prometheus.Await(t, "the end of the job", 8, `nvidia_gpu_duty_cycle{jobid=""}`)
	for i, form := range []string{"with GPU_EXPORTER_JOBID", "without"} {
		got := map[string]map[string]float64{}
		for name, queries := range jobstatsQueries {
			got[name] = map[string]float64{}
			for _, v := range prometheus.Query(t, strings.NewReplacer("{cluster}", "test", "{jobid}", job, "{diff}", fmt.Sprint(int(time.Since(began).Seconds())+1)).Replace(queries[i])) {
				testkit.Equal(t, "instance", "node1:9400", string(v.Metric["instance"]))
				got[name][string(v.Metric["minor_number"])] = float64(v.Value)
			}
		}
		testkit.Equal(t, form, map[string]map[string]float64{
			"gpu_total_memory": {"0": 81920 << 20, "1": 81920 << 20}, "gpu_used_memory": {"0": 1000 << 20, "1": 2000 << 20}, "gpu_utilization": {"0": 80, "1": 40},
		}, got)
	}
}

// healthy starts an exporter in Slurm's network and waits until warpgauge health finds all GPUs healthy.
func (s *slurm) healthy(t *testing.T, exe, spec string) *exporter {
	t.Helper()
	e := serveBy(t, []string{"nsenter", "--target", s.pid, "--net", "--", exe}, spec, "--collect-interval=100", "--health-directory=", "--accounts", "--hpc-job-mapping-dir="+s.jobs)
	s.set(t, "WARPGAUGE_HEALTH_FLAGS=--url="+e.url)
	eventually.OK(t, "healthy GPUs", func() error {
		_, err := s.try(t, exe, "health", "--url="+e.url)
		return err
	})
	return e
}

// reports expects a file and a comment about a job that has ended.
func (s *slurm) reports(t *testing.T, e *exporter) {
	t.Helper()
	ctl := buildControl(t)
	for name, text := range map[string]string{"sacct": "", "sacctmgr": `echo "$*" >` + s.dir + "/comment"} { // there is no slurmdbd
		testkit.Must(t, os.WriteFile(filepath.Join(s.dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	}
	s.set(t, "SLURM_CONF="+s.dir+"/slurm.conf\nPATH="+s.dir+":$PATH\nWARPGAUGE_REPORT_WAIT=60\nWARPGAUGE_ADMIN_COMMENT=1\nWARPGAUGE_CTL="+ctl+"\nWARPGAUGE_REPORT_DIR="+s.dir+"\nWARPGAUGE_REPORT_FLAGS=--url="+e.url+"\nWARPGAUGE_NODE_URL="+e.url)
	id := s.submit(t, "--gres=gpu:2")
	eventually.True(t, "a watt-hour of the job", func() bool {
		text, _ := s.try(t, ctl, "job", id, "--url="+e.url) // it is not known at first
		return strings.Contains(text, " Wh")
	})
	write(t, filepath.Join(s.dir, "out", id+".end"), "")
	var r report.Report
	eventually.OK(t, "the report", func() error {
		text, err := os.ReadFile(filepath.Join(s.dir, id+".node1.json"))
		return errors.Join(err, json.Unmarshal(text, &r))
	})
	if r.GPUs != 2 || r.Left == nil || r.Total.Energy < 3600 || r.Total.GPUSeconds <= r.Seconds(time.Now()) || r.Judgement == "" {
		t.Errorf("report %+v", r)
	}
	eventually.True(t, "the comment", func() bool {
		text, _ := os.ReadFile(filepath.Join(s.dir, "comment")) // it is not there at first
		return string(text) == "-i update job where jobid="+id+" set AdminComment=warpgauge: "+r.Judgement+"\n"
	})
}

// wantJobs waits until the page has the jobs of each GPU. A GPU must have one series per job, or one without a job.
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

// startSlurm starts a cluster with a health check. It skips the test without Slurm or without the right to create namespaces.
func startSlurm(t *testing.T, health string) *slurm {
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
	script := testkit.Get(filepath.Abs("../../deploy/slurm/warpgauge-jobs"))(t)
	s := &slurm{dir: t.TempDir(), script: script}
	s.jobs = filepath.Join(s.dir, "jobs")
	s.set(t, "WARPGAUGE_JOB_DIR="+s.jobs)
	s.set(t, "WARPGAUGE_GPU_MAP="+filepath.Join(s.dir, "gpus"))
	s.Process = launch(t, "unshare", slices.Concat(namespaces, []string{"testdata/slurm-node", s.dir, script, health})...)
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
			err = errors.New(out)
		}
		return err
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
	if err != nil {
		err = fmt.Errorf("%q: %w: %s", command, err, out)
	}
	return string(out), err
}

func (s *slurm) run(t *testing.T, command ...string) string {
	t.Helper()
	return strings.TrimSpace(testkit.Get(s.try(t, command...))(t))
}

// submit starts a job that lasts until end or its cancellation.
func (s *slurm) submit(t *testing.T, resources ...string) (id string) {
	t.Helper()
	args := append([]string{"sbatch", "--parsable", "--ntasks=1", "--output=" + s.dir + "/out/%j"}, resources...)
	return s.run(t, append(args, `--wrap=until [ -e `+s.dir+`/out/$SLURM_JOB_ID.end ]; do sleep 0.1; done`)...)
}

// checked waits for two complete health checks, and expects a node state and reason, without the reason's author and time.
func (s *slurm) checked(t *testing.T, when, state, reason string) {
	t.Helper()
	lines := func() int {
		text, _ := os.ReadFile(filepath.Join(s.dir, "checks")) // it is not there at first
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
