package owner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/view"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
)

// TestAMDJobFiles parses the files of AMD's prolog (example/slurm of ROCm/device-metrics-exporter): one line, joined by
// the shell's echo, in one file for each GPU of the job.
func TestAMDJobFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) { must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)) }
	job := func(id, user, partition, gpus string) string {
		return `{ "SLURM_JOB_ID": "` + id + `", "SLURM_JOB_USER": "` + user + `", "SLURM_JOB_UID": "1007", "SLURM_JOB_PARTITION": "` + partition +
			`", "SLURM_CLUSTER_NAME": "c1", "SLURM_JOB_GPUS": "` + gpus + `", "CUDA_VISIBLE_DEVICES": "` + gpus + `", "SLURM_SCRIPT_CONTEXT": "prolog_slurmd" }` + "\n"
	}
	write("0", job("17", "anna", "mi300", "0,1"))
	write("1", job("17", "anna", "mi300", "0,1"))
	write("2", job("18", "bert", "", "2"))
	write("3", "19\n20\n") // in dcgm-exporter's form
	write(".job-19", "user=cleo\nuid=1009\npartition=debug\n")
	write("4", strings.TrimSuffix(job("21", "dora", "mi300", "4"), " }\n")) // still being written
	write("5", "{}\n")
	j := NewJobDirectory(dir, func() {}, zap.NewNop())
	now := time.Now()
	j.readDirectory(now)
	said := j.Snapshot()
	testkit.Equal(t, "jobs", map[string][]string{"0": {"17"}, "1": {"17"}, "2": {"18"}, "3": {"19", "20"}}, said.ByDevice)
	want := map[string][]collector.Label{
		"17": {{Name: "cluster_name", Value: "c1"}, {Name: "job_partition", Value: "mi300"}, {Name: "job_user", Value: "anna"}, {Name: "job_uid", Value: "1007"}},
		"18": {{Name: "cluster_name", Value: "c1"}, {Name: "job_user", Value: "bert"}, {Name: "job_uid", Value: "1007"}},
		"19": {{Name: "job_partition", Value: "debug"}, {Name: "job_user", Value: "cleo"}, {Name: "job_uid", Value: "1009"}},
	}
	testkit.Equal(t, "labels", want, said.About)

	// A truncated file keeps its job; another user is a change.
	write("0", `{ "SLURM_JOB_ID": "17", "SLU`)
	write("2", job("18", "bertha", "", "2"))
	j.readDirectory(now.Add(time.Second))
	if next := j.Snapshot(); next.Version != said.Version+1 || len(next.ByDevice["0"]) != 1 || next.About["18"][1].Value != "bertha" {
		t.Errorf("version %d after %d, jobs %v, labels %v", next.Version, said.Version, next.ByDevice, next.About)
	}

	// AMD-style metrics carry all known labels; other metrics carry the requested labels.
	r := &renderer{about: said.About, jobLabels: []string{"user"}}
	want2 := []view.Owner{
		{Labels: []collector.Label{{Name: "hpc_job", Value: "17"}, {Name: "job_user", Value: "anna"}}, Facts: want["17"]},
		{Labels: []collector.Label{{Name: "hpc_job", Value: "20"}}},
	}
	testkit.Equal(t, "owners", want2, r.withJobs(nil, []string{"17", "20"}))
}

// TestAboutText: invalid label values are dropped.
func TestAboutText(t *testing.T) {
	for in, want := range map[string]string{" anna ": "anna", "\x1b[0m": "", "a\x00": "", "\xff": "", strings.Repeat("u", maxJobID+1): "", "léa": "léa"} {
		testkit.Equal(t, "aboutText of "+in, want, aboutText(in))
	}
}
