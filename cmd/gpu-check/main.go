// Gpu-check compares warpgauge's page with nvidia-smi's output on a machine with NVIDIA GPUs: first idle, then while
// it multiplies matrices on them. It prints a table of results, and exits with 1 if one of them is bad.
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
	cuda     string        // libcuda; "" disables the load
	rounds   int           // comparisons in each phase
	warmup   time.Duration // from a load change to the first comparison
}

func command(ctx context.Context, args []string) (int, error) {
	set := flag.NewFlagSet("gpu-check", flag.ContinueOnError)
	var o options
	self, _ := os.Executable()
	set.StringVar(&o.exporter, "exporter", filepath.Join(filepath.Dir(self), "warpgauge"), "path of the warpgauge binary")
	set.StringVar(&o.library, "nvml-library", "", "NVML library for warpgauge; nvidia-smi finds its own")
	set.StringVar(&o.smi, "nvidia-smi", "nvidia-smi", "nvidia-smi program")
	set.StringVar(&o.cuda, "cuda", "libcuda.so.1", "CUDA library of the driver; empty disables the load")
	set.IntVar(&o.rounds, "rounds", 5, "comparisons in each phase")
	set.DurationVar(&o.warmup, "warmup", 8*time.Second, "wait from a change of the load to the first comparison")
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
