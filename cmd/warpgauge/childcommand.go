package main

import (
	"context"
	"errors"

	"warpgauge/pkg/exporter"

	"github.com/urfave/cli/v3"

	"warpgauge/pkg/supervisor"
)

// childCommand parses the arguments that childArguments returns. It is not a command for users.
func childCommand(a *exporter.Program) *cli.Command {
	return &cli.Command{
		Name:      "child",
		Usage:     "Sample one collector for the exporter that has started this process",
		ArgsUsage: "COLLECTOR START",
		Hidden:    true,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			err := exporter.Child(ctx, a, cmd.Args().Get(0), cmd.Args().Get(1))
			if errors.Is(err, supervisor.ErrOrphaned) {
				exporter.KillGroup()
			}
			return err
		},
	}
}
