// Command nodes runs what the pictures of the dashboards are taken of: exporters on
// simulated nodes, kubelets that say which pod has which GPU, files that say which
// job, and a Prometheus that scrapes them all and evaluates the recording rules.
//
// After a while it runs the command that it was given, with the address of
// Prometheus in PROMETHEUS_URL, and ends everything when that ends.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

type options struct {
	exporter, prometheus string // binaries
	fields, rules        string
	wait                 time.Duration
	command              []string
}

func main() {
	var o options
	flag.StringVar(&o.exporter, "exporter", "bin/warpgauge", "the exporter's binary")
	flag.StringVar(&o.prometheus, "prometheus", "prometheus", "Prometheus' binary")
	flag.StringVar(&o.fields, "fields", "etc/recommended-counters.csv", "list of fields")
	flag.StringVar(&o.rules, "rules", "deploy/prometheus/rules/recording.yml", "recording rules")
	flag.DurationVar(&o.wait, "wait", 13*time.Minute, "how long to collect data before the command runs")
	flag.Parse()
	o.command = flag.Args()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, &o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "run simulated nodes:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run(ctx context.Context, o *options) error {
	if len(o.command) == 0 {
		return errors.New("no command is given that is to run then")
	}
	dir, err := os.MkdirTemp("", "warpgauge-pictures")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // the system clears its temporary files, too
	ctx, cancel := context.WithCancelCause(ctx)
	all := &processes{dir: dir, failed: cancel}
	defer all.wait()
	defer cancel(nil)

	var targets []target
	for _, n := range nodes() {
		address, err := n.start(ctx, all, o)
		if err != nil {
			return fmt.Errorf("start node %q: %w", n.name, err)
		}
		targets = append(targets, target{name: n.name, address: address})
	}
	url, err := startPrometheus(ctx, all, o, targets)
	if err != nil {
		return fmt.Errorf("start prometheus: %w", err)
	}
	fmt.Fprintf(os.Stderr, "%d simulated nodes, Prometheus at %s; pictures in %s\n", len(targets), url, o.wait)
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(o.wait):
	}
	c := exec.CommandContext(ctx, o.command[0], o.command[1:]...) //nolint:gosec // what the user asks for
	c.Env = append(os.Environ(), "PROMETHEUS_URL="+url)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	return errors.Join(c.Run(), context.Cause(ctx))
}

// absolute lets processes have directories of their own.
func absolute(path string) (string, error) {
	if filepath.Base(path) == path { // found by PATH
		return exec.LookPath(path)
	}
	return filepath.Abs(path)
}
