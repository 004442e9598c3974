package main

import (
	"context"
	"errors"

	"github.com/urfave/cli/v3"

	"warpgauge/extensions/accounts/report"
	"warpgauge/pkg/config"
)

func jobCommand(a *app) *cli.Command {
	return &cli.Command{
		Name: "job", ArgsUsage: "ID",
		Usage: "Report what a job or a pod has used of its GPUs",
		Description: "ID is a job's, NAMESPACE/POD, or an id of /api/v1/owners. It adds up what the exporters know of it.\n" +
			"Ends with code 1 if an exporter does not answer, or if none knows it.",
		Flags: a.targetFlags(),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Len() != 1 || cmd.Args().First() == "" {
				return errors.New("job takes one ID; see warpctl job --help")
			}
			nodes, err := a.targets(ctx, cmd)
			if err != nil {
				return err
			}
			r, err := report.Ask(ctx, report.IDOf(cmd.Args().First()), nodes)
			if r != nil {
				err = errors.Join(err, config.WriteOutput(a.out, cmd.String("output"), r, r.WriteTable))
			}
			return err
		},
	}
}
