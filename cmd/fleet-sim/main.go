// Fleet-sim serves many simulated GPU nodes from one process. Each node is an ordinary exporter with simulated GPUs
// and its own seed, host name, pods, sampler and page. Prometheus discovers the nodes over HTTP. Use it to size
// Prometheus before the nodes exist; docs/scale.md has its results.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"warpgauge/collectors/fake"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:], os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "fleet-sim:", err)
		os.Exit(1)
	}
}

// command runs the program without exiting.
func command(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args, out)
	if err != nil {
		return err
	}
	f, err := newFleet(o)
	if err != nil {
		return err
	}
	return f.run(ctx, out)
}

// options holds the flags' values.
type options struct {
	nodes    int
	address  string
	profiles []string
	devices  int
	spec     *fake.Spec
	counters string
	interval time.Duration
	pods     podOptions
}

func parse(args []string, out io.Writer) (options, error) {
	var o options
	set := flag.NewFlagSet("fleet-sim", flag.ContinueOnError)
	set.SetOutput(out)
	set.IntVar(&o.nodes, "nodes", 10, "number of nodes")
	set.StringVar(&o.address, "address", "127.0.0.1:9500", "address that serves all nodes")
	profiles := set.String("profiles", fake.DefaultProfile, "node profiles, assigned in turn: "+strings.Join(fake.Profiles(), ","))
	set.IntVar(&o.devices, "devices", 0, "GPUs per node; 0 uses the profile's number")
	spec := set.String("spec", "", "script for each node's GPUs, in the format of --fake-spec")
	set.StringVar(&o.counters, "counters", "default-counters.csv", "counters file, or the name of a built-in one")
	set.DurationVar(&o.interval, "interval", 5*time.Second, "time between two samples of a GPU")
	set.IntVar(&o.pods.perDevice, "pods-per-gpu", 0, "pods per GPU or MIG instance; each pod of a shared device has its own copy of the series")
	set.DurationVar(&o.pods.lifetime, "pod-lifetime", 0, "time after which another pod replaces a pod; 0 keeps pods for ever")
	if err := set.Parse(args); err != nil {
		return o, err
	}
	if set.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	o.profiles = strings.Split(*profiles, ",")
	if *spec != "" {
		var err error
		if o.spec, err = fake.LoadSpec(*spec); err != nil {
			return o, fmt.Errorf("read --spec: %w", err)
		}
	}
	return o, o.check()
}

// maxNodes bounds the number of nodes, against typing errors.
const maxNodes = 20_000

func (o *options) check() error {
	switch {
	case o.nodes < 1 || o.nodes > maxNodes:
		return fmt.Errorf("--nodes is %d: write a number from 1 to %d", o.nodes, maxNodes)
	case o.pods.perDevice < 0 || o.pods.perDevice > maxPods:
		return fmt.Errorf("--pods-per-gpu is %d: write a number from 0 to %d", o.pods.perDevice, maxPods)
	case o.pods.lifetime != 0 && o.pods.lifetime < time.Second:
		return fmt.Errorf("--pod-lifetime is %v: write at least 1s, or 0", o.pods.lifetime)
	case o.interval < 10*time.Millisecond:
		return fmt.Errorf("--interval is %v: write at least 10ms", o.interval)
	}
	return nil
}
