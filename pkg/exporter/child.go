package exporter

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"warpgauge/pkg/supervisor"
)

// childArguments are how this binary starts itself for one collector: with the flags
// that it was started with, so that the child has the same configuration, and the
// time at which the exporter was started.
func childArguments(a *Program, name string, start time.Time) []string {
	out := append([]string{"warpgauge", "child"}, a.Flags.Arguments()...)
	return append(out, name, strconv.FormatInt(start.UnixNano(), 10))
}

// Child runs the collector of that name in the process that the exporter started for it. started is when the exporter was
// started, in nanoseconds since 1970.
func Child(ctx context.Context, a *Program, name, started string) error {
	cfg, err := a.Config()
	if err != nil {
		return err
	}
	ns, err := strconv.ParseInt(started, 10, 64)
	control := os.NewFile(supervisor.ControlFD, "control")
	if err != nil || control == nil {
		return fmt.Errorf("the child command is for the exporter itself, not for users")
	}
	list, until, err := supervisor.ReadInput(os.Stdin)
	if err != nil {
		return err
	}
	// Not through the backlog: the exporter always reads, and the last lines before a crash count.
	log := supervisor.ChildLogger(a.Err, cfg.LogLevel())
	factory, err := a.ChildFactory(cfg, name, time.Unix(0, ns), log)
	if err != nil {
		return err
	}
	o := sessionOptions(cfg, name, log)
	o.Until = until
	return supervisor.Child(ctx, control, samplerStop*3/4, factory, a.extend(cfg, list), o)
}

// KillGroup ends what a library has started, and this process with it, if the
// exporter started it as the leader of a group.
func KillGroup() {
	if unix.Getpgrp() == os.Getpid() {
		_ = unix.Kill(0, unix.SIGKILL)
	}
}
