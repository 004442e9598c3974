// Gpu-check compares warpgauge's page with nvidia-smi's output on a machine with NVIDIA GPUs, idle or under any load. It
// prints a table of results, and exits with 1 if one of them is bad.
//
// It needs the driver, nvidia-smi, and the binary warpgauge next to it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := command(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gpu-check:", err)
	}
	os.Exit(code)
}

// Exit codes.
const (
	allGood = 0
	someBad = 1
	notMade = 2 // the check could not run
)

// options holds the flags' values.
type options struct {
	exporter string        // the warpgauge binary
	library  string        // NVML; "" searches as the exporter does
	smi      string        // nvidia-smi
	rounds   int           // comparisons
	warmup   time.Duration // from the exporter's start to the first comparison
}

func command(ctx context.Context, args []string) (int, error) {
	set := flag.NewFlagSet("gpu-check", flag.ContinueOnError)
	var o options
	self, _ := os.Executable()
	set.StringVar(&o.exporter, "exporter", filepath.Join(filepath.Dir(self), "warpgauge"), "path of the warpgauge binary")
	set.StringVar(&o.library, "nvml-library", "", "NVML library for warpgauge; nvidia-smi finds its own")
	set.StringVar(&o.smi, "nvidia-smi", "nvidia-smi", "nvidia-smi program")
	set.IntVar(&o.rounds, "rounds", 5, "comparisons")
	set.DurationVar(&o.warmup, "warmup", 3*time.Second, "wait from the exporter's start to the first comparison")
	if err := set.Parse(args); errors.Is(err, flag.ErrHelp) {
		return allGood, nil
	} else if err != nil {
		return notMade, nil //nolint:nilerr // Parse has printed it
	}
	if o.rounds < 1 {
		return notMade, errors.New("--rounds must be at least 1")
	}
	r, err := run(ctx, o)
	if err != nil {
		return notMade, err
	}
	if err := r.print(os.Stdout); err != nil {
		return notMade, err
	}
	if r.failed() > 0 {
		return someBad, nil
	}
	return allGood, nil
}
