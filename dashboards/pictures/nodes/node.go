package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// node is a simulated node and who uses its GPUs.
type node struct {
	name, profile string
	fields        string // list of fields, if not that of the others
	seed          int
	script        string // faults, for --fake-spec
	flags         []string
	phases        []phase
}

// phase is who has what from a time on. A node has pods or jobs.
type phase struct {
	from time.Duration // since the start
	pods []*v1.PodResources
	jobs map[int]string // ids by number of the GPU, as a batch system's prolog writes them
}

// start returns the address of the node's exporter.
func (n *node) start(ctx context.Context, all *processes, o *options) (string, error) {
	exe, err := absolute(o.exporter)
	if err != nil {
		return "", err
	}
	fields, err := filepath.Abs(cmp.Or(n.fields, o.fields))
	if err != nil {
		return "", err
	}
	address, err := address(ctx)
	if err != nil {
		return "", err
	}
	script := filepath.Join(all.dir, n.name+".yaml")
	if err := os.WriteFile(script, []byte(n.script), 0o600); err != nil {
		return "", err
	}
	args := append([]string{
		"--address=" + address, "--collectors=" + fields, "--process-values=false", "--exporter-metrics=full",
		"--enable-fake", "--enable-only=fake", "--fake-profile=" + n.profile, "--fake-spec=" + script, fmt.Sprintf("--fake-seed=%d", n.seed),
	}, n.flags...)
	k, socket, err := startKubelet(ctx, all, n.name)
	if err != nil {
		return "", err
	}
	jobs := filepath.Join(all.dir, n.name+"-jobs")
	if err := os.Mkdir(jobs, 0o700); err != nil {
		return "", err
	}
	if n.phases[0].jobs != nil {
		args = append(args, "--hpc-job-mapping-dir="+jobs)
	} else {
		args = append(args, "--kubernetes", "--pod-resources-kubelet-socket="+socket)
	}
	go n.live(ctx, all, k, jobs)
	return address, all.start(ctx, n.name, exe, []string{"NODE_NAME=" + n.name}, args...)
}

// live goes through the phases.
func (n *node) live(ctx context.Context, all *processes, k *kubelet, jobs string) {
	start := time.Now()
	for _, p := range n.phases {
		select {
		case <-ctx.Done():
			return
		case <-time.After(p.from - time.Since(start)):
		}
		k.set(p.pods)
		if err := writeJobs(jobs, p.jobs); err != nil {
			all.failed(fmt.Errorf("write jobs of %q: %w", n.name, err))
			return
		}
	}
}

// writeJobs writes the job files. It replaces a file in one step, so that no reader sees
// half of it.
func writeJobs(dir string, jobs map[int]string) error {
	old, err := filepath.Glob(filepath.Join(dir, "[0-9]*"))
	if err != nil {
		return err
	}
	for gpu, job := range jobs {
		path := filepath.Join(dir, fmt.Sprint(gpu))
		fresh := filepath.Join(dir, fmt.Sprintf(".%d.new", gpu))
		if err := os.WriteFile(fresh, []byte(job+"\n"), 0o600); err != nil {
			return err
		}
		if err := os.Rename(fresh, path); err != nil {
			return err
		}
	}
	for _, path := range old {
		var gpu int
		if _, err := fmt.Sscan(filepath.Base(path), &gpu); err != nil {
			return err
		}
		if _, still := jobs[gpu]; still {
			continue
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}
