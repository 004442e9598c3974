package main

import (
	"context"
	"fmt"
	"os"

	"github.com/urfave/cli/v3"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/isolation"
)

// childCommand is how this binary starts itself for one collector: with the
// flags that it was started with, so that the child has the same configuration.
func (a *app) childCommand(name string) []string {
	return append(append([]string{"warpgauge", "child"}, a.flags.Arguments()...), name)
}

// childCommandLine is the other end of childCommand. It is no command for people.
func (a *app) childCommandLine() *cli.Command {
	return &cli.Command{
		Name:      "child",
		Usage:     "Sample one collector for the exporter that has started this process",
		ArgsUsage: "COLLECTOR",
		Hidden:    true,
		Action:    func(ctx context.Context, cmd *cli.Command) error { return a.child(ctx, cmd.Args().First()) },
	}
}

func (a *app) child(ctx context.Context, name string) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	control := os.NewFile(isolation.ControlFD, "control")
	if control == nil {
		return fmt.Errorf("the child command is for the exporter itself, not for people")
	}
	return isolation.Child(ctx, control, a.build.text(), func(s isolation.Setup) (collector.Factory, error) {
		return childFactory(cfg, name, s.Start, s.Logger)
	})
}
