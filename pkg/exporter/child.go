package exporter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"

	"warpgauge/pkg/field"
	"warpgauge/pkg/supervisor"
)

// childArguments are how this binary starts itself for one collector: with the flags
// that it was started with, so that the child has the same configuration, and the
// time at which the exporter was started.
func childArguments(a *Program, name string, start time.Time) []string {
	out := append([]string{"warpgauge", "child"}, a.Flags.Arguments()...)
	return append(out, name, strconv.FormatInt(start.UnixNano(), 10))
}

// ChildCommand is a command that runs one collector in a process that the exporter starts for it. It is not a command for users.
func ChildCommand(a *Program) *cli.Command {
	return &cli.Command{
		Name:      "child",
		Usage:     "Sample one collector for the exporter that has started this process",
		ArgsUsage: "COLLECTOR START",
		Hidden:    true,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			err := child(ctx, a, cmd.Args().Get(0), cmd.Args().Get(1))
			if errors.Is(err, supervisor.ErrOrphaned) && unix.Getpgrp() == os.Getpid() {
				_ = unix.Kill(0, unix.SIGKILL) // what a library has started, and this process
			}
			return err
		},
	}
}

// child runs the collector of that name. started is when the exporter was started, in nanoseconds since 1970.
func child(ctx context.Context, a *Program, name, started string) error {
	cfg, err := a.Config()
	if err != nil {
		return err
	}
	ns, err := strconv.ParseInt(started, 10, 64)
	control := os.NewFile(supervisor.ControlFD, "control")
	if err != nil || control == nil {
		return fmt.Errorf("the child command is for the exporter itself, not for users")
	}
	// Not through the backlog: the exporter always reads, and the last lines before a crash count.
	log := supervisor.ChildLogger(a.Err, cfg.LogLevel())
	factory, err := a.childFactory(cfg, name, time.Unix(0, ns), log)
	if err != nil {
		return err
	}
	extend := func(list field.List) field.List { return a.extend(cfg, list) }
	return supervisor.Child(ctx, control, samplerStop*3/4, factory, extend, sessionOptions(cfg, name, log))
}
