package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"warpgauge/internal/testkit/loopback"
	"warpgauge/pkg/field"
)

// gpu is one of the machine's GPUs.
type gpu struct {
	index      int
	uuid, name string
}

// runner holds the state of a run.
type runner struct {
	options
	smi *smi
	url string // of the exporter's page
	rep *report
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "gpu-check: "+format+"\n", args...) }

// run runs the whole check.
func run(ctx context.Context, o options) (*report, error) {
	r := &runner{options: o, smi: &smi{path: o.smi, queries: properties()}, rep: &report{when: time.Now()}}
	all, err := r.smi.ask(ctx)
	if err != nil {
		return nil, err
	}
	for uuid, one := range all {
		index, _ := strconv.Atoi(one["csv:index"])
		r.rep.driver = one["csv:driver_version"]
		r.rep.gpus = append(r.rep.gpus, gpu{index, uuid, one["csv:name"]})
		// The simulated NVML (collectors/nvml/nvmltest) marks its UUIDs.
		r.rep.simulated = r.rep.simulated || strings.HasPrefix(uuid, "GPU-fa4e")
	}
	if len(r.rep.gpus) == 0 {
		return nil, errors.New("nvidia-smi lists no GPU")
	}
	slices.SortFunc(r.rep.gpus, func(a, b gpu) int { return cmp.Compare(a.index, b.index) })
	return r.rep, r.withExporter(ctx, r.compare)
}

// withExporter runs f while a warpgauge serves every field of the catalogue, read through NVML only.
func (r *runner) withExporter(ctx context.Context, f func(context.Context) error) error {
	dir, err := os.MkdirTemp("", "gpu-check-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var list strings.Builder
	for _, d := range field.All() {
		if kind, ok := map[field.Kind]string{field.Int64: "gauge", field.Double: "gauge", field.String: "label"}[d.Kind]; ok {
			fmt.Fprintf(&list, "%s, %s, gpu-check\n", d.Name, kind)
		}
	}
	fields := filepath.Join(dir, "all.csv")
	if err := os.WriteFile(fields, []byte(list.String()), 0o600); err != nil {
		return err
	}
	port, err := loopback.Reserve()
	if err != nil {
		return err
	}
	defer func() { _ = port.Close() }()
	r.url = "http://" + port.Address() + "/metrics"
	args := []string{"--address=" + port.Address(), "--collect-interval=1000", "--slow-interval=2s", "--enable-nvml=true", "--enable-only=nvml", "--collectors=" + fields}
	if r.library != "" {
		args = append(args, "--nvml-library="+r.library)
	}
	cmd := exec.CommandContext(ctx, r.exporter, args...) //nolint:gosec // the user's program
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // lets it release the driver
	cmd.WaitDelay = 15 * time.Second
	if err := cmd.Start(); err != nil {
		return err
	}
	inner, stop := context.WithCancel(ctx) // ends when the exporter does
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Wait()
		stop()
	}()
	if err = r.ready(inner); err == nil {
		err = f(inner)
	}
	_ = cmd.Cancel() // it may have ended already
	if end := <-ended; end != nil || err != nil {
		return errors.Join(err, end, fmt.Errorf("warpgauge ended with the log:\n%s", &log))
	}
	return nil
}

// ready waits until the page has GPUs.
func (r *runner) ready(ctx context.Context) (err error) {
	for range 300 {
		if err = wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
		var p page
		if p, err = scrape(ctx, r.url); err == nil && len(p["DCGM_FI_DEV_GPU_TEMP"]) > 0 {
			return nil
		}
	}
	return errors.Join(errors.New("warpgauge shows no GPU after half a minute"), err)
}

// compare makes the rounds and compares each GPU over them.
func (r *runner) compare(ctx context.Context) error {
	say("%d comparisons with nvidia-smi", r.rounds)
	if err := wait(ctx, r.warmup); err != nil {
		return err
	}
	start := time.Now()
	var rounds []round
	for range r.rounds {
		one, err := r.round(ctx)
		if err != nil {
			return err
		}
		rounds = append(rounds, one)
	}
	seconds := time.Since(start).Seconds()
	for _, g := range r.rep.gpus {
		r.rep.add(g, compareAll(g, rounds)...)
		r.rep.add(g, expectEnergy(g, rounds, seconds)...)
		r.rep.leaveOut(rounds[0].after.uncompared(g.uuid))
	}
	return nil
}

func (r *runner) round(ctx context.Context) (one round, err error) {
	if one.before, err = scrape(ctx, r.url); err != nil {
		return one, err
	}
	if one.smi, err = r.smi.ask(ctx); err != nil {
		return one, err
	}
	// The second page needs a sample that began after nvidia-smi's answer.
	if err = wait(ctx, time.Second); err != nil {
		return one, err
	}
	one.after, err = scrape(ctx, r.url)
	return one, err
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
