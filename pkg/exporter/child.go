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

// childCommand returns the hidden command that runs one collector in a child process of the exporter.
func childCommand(a *Program) *cli.Command {
	return &cli.Command{
		Name:      "child",
		Usage:     "Sample one collector for the exporter that has started this process",
		ArgsUsage: "COLLECTOR START",
		Hidden:    true,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			err := child(ctx, a, cmd.Args().Get(0), cmd.Args().Get(1))
			if errors.Is(err, supervisor.ErrOrphaned) && unix.Getpgrp() == os.Getpid() {
				_ = unix.Kill(0, unix.SIGKILL) // the library's own processes, and this process
			}
			return err
		},
	}
}

// child runs the collector of that name. started is the exporter's start time in nanoseconds since 1970.
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
	// Write directly: the exporter always reads, and the last lines before a crash count.
	log := supervisor.ChildLogger(a.Err, cfg.LogLevel())
	factory, err := a.childFactory(cfg, name, time.Unix(0, ns), log)
	if err != nil {
		return err
	}
	a.frugal()
	defer time.AfterFunc(dropAfter, dropStart).Stop()
	extend := func(list field.List) field.List { return a.extend(cfg, list) }
	return supervisor.Child(ctx, control, samplerStop*3/4, factory, extend, sessionOptions(cfg, name, log))
}
