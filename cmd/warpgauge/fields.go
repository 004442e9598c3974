package main

import (
	"context"

	"github.com/urfave/cli/v3"

	"warpgauge/pkg/field"
)

func (a *app) fieldsCommand() *cli.Command {
	return &cli.Command{
		Name:        "fields",
		Usage:       "List the fields that a counters CSV can ask for",
		ArgsUsage:   "[PATTERN]",
		Description: "PATTERN is part of an id, name, unit or meaning, in any case.",
		Action: func(_ context.Context, cmd *cli.Command) error {
			return field.WriteTable(a.out, cmd.Args().First())
		},
	}
}
