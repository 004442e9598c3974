package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"warpgauge/pkg/field"
	"warpgauge/pkg/sampler"
)

func timeoutFlag() cli.Flag {
	return &cli.DurationFlag{Name: "timeout", Value: 10 * time.Second, Usage: "Longest time to wait for libraries and devices."}
}

func (a *app) devicesCommand() *cli.Command {
	return &cli.Command{
		Name:  "devices",
		Usage: "List the devices of this machine and their state",
		Description: "Opens every enabled collector, samples each device once and prints a table.\n" +
			"Collectors that are not in use say why.",
		Flags: []cli.Flag{
			timeoutFlag(),
			&cli.BoolFlag{Name: "all", Usage: "List links and cores too."},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			return a.devices(ctx, cmd.Duration("timeout"), cmd.Bool("all"))
		},
	}
}

func (a *app) devices(ctx context.Context, timeout time.Duration, all bool) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	log := a.quietLogger(cfg)
	list, _, err := newCounters(cfg).first(log)
	if err != nil {
		return err
	}
	wanted, err := collectors(cfg, log)
	if err != nil {
		return err
	}
	s := a.newEngine(cfg, wanted, list, nil, log)
	return sampleOnce(ctx, s, timeout, func(_ context.Context, st []sampler.CollectorStatus) error {
		return writeDevices(a.out, st, all)
	})
}

// writeDevices prints the table of devices, then the collectors without any.
func writeDevices(w io.Writer, collectors []sampler.CollectorStatus, all bool) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	shown, hidden := 0, 0
	for _, c := range collectors {
		for _, d := range c.Devices {
			if !all && (d.Device.Level == field.Link || d.Device.Level == field.Core) {
				hidden++
				continue
			}
			if shown++; shown == 1 {
				fmt.Fprintln(t, "COLLECTOR\tSTATE\tKIND\tGPU\tID\tMODEL\tPCI BUS ID\tREASON")
			}
			dev := &d.Device
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Name, d.State, kindOf(dev.Level),
				cmp.Or(dev.GPU, "-"), dev.ID, cmp.Or(dev.Model, "-"), cmp.Or(dev.PCIBusID, "-"), d.Reason)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if hidden > 0 {
		fmt.Fprintf(w, "%s more: links and cores (--all lists them)\n", count(hidden, "device")) //nolint:errcheck // as above
	}
	if shown+hidden == 0 {
		fmt.Fprintln(w, "no device found") //nolint:errcheck // as above
	}
	for _, c := range collectors {
		if !c.Up {
			fmt.Fprintf(w, "%s is not in use: %s\n", c.Name, c.Reason) //nolint:errcheck // as above
		}
	}
	return nil
}

func kindOf(l field.Level) string {
	switch l {
	case field.GPU:
		return "gpu"
	case field.Instance:
		return "instance"
	case field.ComputeInstance:
		return "compute instance"
	case field.Link:
		return "link"
	case field.Switch:
		return "switch"
	case field.CPU:
		return "cpu"
	case field.Core:
		return "core"
	}
	return "other"
}
