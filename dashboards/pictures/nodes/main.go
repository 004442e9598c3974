// Command nodes runs the programs behind the pictures of the dashboards: exporters on simulated nodes, kubelets that
// list which pod has which GPU, job files, and a Prometheus that scrapes all nodes and evaluates the recording rules.
//
// After a delay it runs the given command, with Prometheus' address in PROMETHEUS_URL, and stops everything when the
// command ends.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	delay := flag.Duration("wait", 13*time.Minute, "how long to collect data before the command runs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *delay, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "run simulated nodes:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

// run must be called in the root of the repository, after bin/warpgauge was built.
func run(ctx context.Context, delay time.Duration, command []string) error {
	if len(command) == 0 {
		return errors.New("name a command to run")
	}
	dir, err := os.MkdirTemp("", "warpgauge-pictures")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // the system clears its temporary files, too
	ctx, cancel := context.WithCancelCause(ctx)
	all := &processes{dir: dir, failed: cancel}
	defer all.wg.Wait()
	defer cancel(nil)

	nodes := nodes()
	for _, n := range nodes {
		if err := n.start(ctx, all); err != nil {
			return fmt.Errorf("start node %q: %w", n.name, err)
		}
	}
	url, err := startPrometheus(ctx, all, nodes)
	if err != nil {
		return fmt.Errorf("start prometheus: %w", err)
	}
	fmt.Fprintf(os.Stderr, "%d simulated nodes, Prometheus at %s; pictures in %s\n", len(nodes), url, delay)
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(delay):
	}
	c := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // the user chooses the command
	c.Env = append(os.Environ(), "PROMETHEUS_URL="+url)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	return errors.Join(c.Run(), context.Cause(ctx))
}
