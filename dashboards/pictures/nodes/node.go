package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// node is a simulated node with the users of its GPUs.
type node struct {
	name, profile string
	address       string // of its exporter
	fields        string // list of fields, if different from the other nodes
	seed          int
	script        string // faults, for --fake-spec
	flags         []string
	pods          []*v1.PodResources // pods with its GPUs, or
	jobs          map[int]string     // job IDs by GPU number, as a batch system's prolog writes them
}

// start starts the node's exporter.
func (n *node) start(ctx context.Context, all *processes) error {
	exe, err := filepath.Abs("bin/warpgauge")
	if err != nil {
		return err
	}
	fields, err := filepath.Abs(cmp.Or(n.fields, "etc/recommended-counters.csv"))
	if err != nil {
		return err
	}
	if n.address, err = address(ctx); err != nil {
		return err
	}
	script := filepath.Join(all.dir, n.name+".yaml")
	if err := os.WriteFile(script, []byte(n.script), 0o600); err != nil {
		return err
	}
	args := append([]string{
		"--address=" + n.address, "--collectors=" + fields, "--process-values=false", "--exporter-metrics=full",
		"--enable-only=fake", "--fake-profile=" + n.profile, "--fake-spec=" + script, fmt.Sprintf("--fake-seed=%d", n.seed),
	}, n.flags...)
	if n.jobs == nil {
		socket, err := startKubelet(ctx, all, n)
		if err != nil {
			return err
		}
		args = append(args, "--kubernetes", "--pod-resources-kubelet-socket="+socket)
	} else {
		jobs := filepath.Join(all.dir, n.name+"-jobs")
		if err := os.Mkdir(jobs, 0o700); err != nil {
			return err
		}
		for gpu, job := range n.jobs {
			if err := os.WriteFile(filepath.Join(jobs, strconv.Itoa(gpu)), []byte(job+"\n"), 0o600); err != nil {
				return err
			}
		}
		args = append(args, "--hpc-job-mapping-dir="+jobs)
	}
	return all.start(ctx, n.name, exe, []string{"NODE_NAME=" + n.name}, args...)
}
