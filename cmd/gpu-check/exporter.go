package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
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

// withExporter runs f next to a warpgauge, NVML only, whose page has a GPU.
func withExporter(ctx context.Context, o options, every time.Duration, fields string, f func(*exporter) error) error {
	port, err := loopback.Reserve()
	if err != nil {
		return err
	}
	defer func() { _ = port.Close() }()
	args := []string{
		"--address=" + port.Address(), fmt.Sprintf("--collect-interval=%d", every.Milliseconds()), "--slow-interval=2s",
		"--enable-nvml=true", "--enable-only=nvml", "--exporter-metrics=full",
	}
	if fields != "" {
		args = append(args, "--collectors="+fields)
	}
	if o.library != "" {
		args = append(args, "--nvml-library="+o.library)
	}
	e := &exporter{cmd: exec.Command(o.exporter, args...), url: "http://" + port.Address() + "/metrics", log: &bytes.Buffer{}, ended: make(chan error, 1)} //nolint:noctx,gosec // it is stopped by a signal, so that it lets the driver go; the user names it
	e.cmd.Stdout, e.cmd.Stderr = e.log, e.log
	if err := e.cmd.Start(); err != nil {
		return err
	}
	go func() { e.ended <- e.cmd.Wait() }()
	if err = e.ready(ctx); err == nil {
		err = f(e)
	}
	return errors.Join(err, e.stop())
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
		if p, err := scrape(ctx, e.url); err == nil && len(p["DCGM_FI_DEV_GPU_TEMP"]) > 0 {
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
