package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"warpgauge/internal/testkit/loopback"
	"warpgauge/pkg/field"
)

// exporter is a warpgauge that this program has started.
type exporter struct {
	cmd   *exec.Cmd
	url   string
	log   *bytes.Buffer
	ended chan error
}

// startExporter starts warpgauge, NVML only, and waits for its first GPU.
func startExporter(ctx context.Context, o options, every time.Duration, fields string) (*exporter, error) {
	port, err := loopback.Reserve()
	if err != nil {
		return nil, err
	}
	defer func() { _ = port.Close() }() // the exporter listens by now
	address := port.Address()
	args := []string{
		"--address=" + address, "--collect-interval=" + strconv.FormatInt(every.Milliseconds(), 10), "--slow-interval=2s",
		"--enable-nvml=true", "--enable-only=nvml", "--exporter-metrics=full",
	}
	if fields != "" {
		args = append(args, "--collectors="+fields)
	}
	if o.library != "" {
		args = append(args, "--nvml-library="+o.library)
	}
	e := &exporter{cmd: exec.Command(o.exporter, args...), url: "http://" + address + "/metrics", log: &bytes.Buffer{}, ended: make(chan error, 1)} //nolint:noctx,gosec // it is stopped by a signal, so that it lets the driver go; the user names it
	e.cmd.Stdout, e.cmd.Stderr = e.log, e.log
	if err := e.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { e.ended <- e.cmd.Wait() }()
	if err := e.ready(ctx); err != nil {
		return nil, errors.Join(err, e.stop())
	}
	return e, nil
}

// ready waits until the page has GPUs.
func (e *exporter) ready(ctx context.Context) error {
	const patience = 30 * time.Second
	for start := time.Now(); time.Since(start) < patience; {
		select {
		case err := <-e.ended:
			e.ended <- err
			return fmt.Errorf("warpgauge ended: %w\n%s", err, e.log)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
		if p, err := scrape(ctx, e.url); err == nil && len(p.families["DCGM_FI_DEV_GPU_TEMP"].GetMetric()) > 0 {
			return nil
		}
	}
	return fmt.Errorf("warpgauge shows no GPU after %v (its log follows)", patience)
}

// stop ends the exporter as a service manager does. Where it has failed, its log
// is in the error.
func (e *exporter) stop() error {
	if err := e.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case err := <-e.ended:
		if err != nil {
			return fmt.Errorf("warpgauge: %w\n%s", err, e.log)
		}
		return nil
	case <-time.After(15 * time.Second):
		return errors.Join(errors.New("warpgauge does not end"), e.cmd.Process.Kill())
	}
}

// cpu is the processor time that the exporter and its children have used.
func (e *exporter) cpu() (time.Duration, error) { return cpuOf(e.cmd.Process.Pid) }

func cpuOf(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may hold anything; then state is field 3, and utime
	// and stime are 14 and 15, in ticks of 10 ms.
	_, rest, ok := bytes.Cut(stat[bytes.LastIndexByte(stat, '('):], []byte(") "))
	fields := strings.Fields(string(rest))
	const utime, stime, tick = 14 - 3, 15 - 3, 10 * time.Millisecond
	if !ok || len(fields) <= stime {
		return 0, fmt.Errorf("cannot read /proc/%d/stat", pid)
	}
	var sum time.Duration
	for _, i := range []int{utime, stime} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n) * tick
	}
	lists, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "children"))
	if err != nil {
		return 0, err
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // a thread that has ended
		}
		for _, child := range strings.Fields(string(text)) {
			n, err := strconv.Atoi(child)
			if err != nil {
				return 0, err
			}
			used, err := cpuOf(n)
			if err == nil {
				sum += used
			}
		}
	}
	return sum, nil
}

// writeFields writes a list of every field of the catalogue, so that whatever the
// GPU can tell is on the page.
func writeFields(path string) error {
	var b strings.Builder
	for _, d := range field.All() {
		switch d.Kind {
		case field.Int64, field.Double:
			fmt.Fprintf(&b, "%s, gauge, gpu-check\n", d.Name)
		case field.String:
			fmt.Fprintf(&b, "%s, label, gpu-check\n", d.Name)
		}
	}
	return os.WriteFile(path, []byte(b.String()), 0o600)
}
