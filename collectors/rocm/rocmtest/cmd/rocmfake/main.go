// Rocmfake writes a simulated /sys of a node with AMD GPUs to a directory, for programs that are started by hand:
//
//	go run ./collectors/rocm/rocmtest/cmd/rocmfake --dir /tmp/sim --model mi300x --partition CPX
//
// prints /tmp/sim/sys. With --stay it keeps changing the values until its parent process ends. The script
// fake-amd-sysfs.sh in rocmtest runs it and mounts the tree over /sys for one command and its children.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"warpgauge/collectors/rocm/rocmtest"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "rocmfake:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	parent := os.Getppid() // first, because the parent may end soon
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if o.stay {
		// A terminal sends these to the whole process group; the parent handles them.
		signal.Ignore(syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP)
	}
	tree, err := rocmtest.Build(o.dir, o.node)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, tree.Sys()); err != nil || !o.stay {
		return err
	}
	if err := move(tree, o.every, func() bool { return os.Getppid() != parent }); err != nil {
		return err
	}
	if o.remove {
		return os.RemoveAll(o.dir)
	}
	return nil
}

// options holds the values of the flags.
type options struct {
	dir          string
	node         rocmtest.Options
	stay, remove bool
	every        time.Duration
}

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("rocmfake", flag.ContinueOnError)
	f.StringVar(&o.dir, "dir", "", "directory to write to")
	model := f.String("model", "mi250x", "board: "+strings.Join(rocmtest.Models(), ", "))
	f.IntVar(&o.node.GPUs, "gpus", 4, "number of GPUs, 1 to 16; with mi250x of dies, two in a package")
	f.StringVar(&o.node.Metrics, "metrics", "", "revision of gpu_metrics: 1.0 to 1.9, 2.0 to 2.4, 3.0 (the board's own)")
	f.StringVar(&o.node.Partition, "partition", "", "compute partition mode of mi300x: SPX, DPX, QPX, CPX")
	f.StringVar(&o.node.Memory, "memory", "", "memory partition mode of mi300x: NPS1, NPS4")
	f.BoolVar(&o.node.NoBMC, "no-bmc", false, "card0 is the first GPU, not the display of a server's BMC")
	f.BoolVar(&o.stay, "stay", false, "stay until the process that has started this one ends, and move the values")
	f.DurationVar(&o.every, "every", 100*time.Millisecond, "time between two moves; 0 leaves the values as they are")
	f.BoolVar(&o.remove, "remove", false, "remove the directory at the end of --stay")
	f.SetOutput(io.Discard) // main reports the error
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		f.SetOutput(os.Stderr)
		f.Usage()
	}
	if err != nil {
		return o, err
	}
	o.node.Model, err = rocmtest.ParseModel(*model)
	switch {
	case err != nil:
		return o, err
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.dir == "":
		return o, fmt.Errorf("--dir is missing")
	case o.node.GPUs == 0: // 0 means the default in rocmtest
		return o, fmt.Errorf("no GPUs")
	case o.every < 0:
		return o, fmt.Errorf("--every %v is negative", o.every)
	}
	return o, nil
}
