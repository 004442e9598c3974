package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
)

func timeoutFlag() cli.Flag {
	return &cli.DurationFlag{Name: "timeout", Value: 10 * time.Second, Usage: "Longest time to wait for libraries and devices."}
}

func devicesCommand(a *app) *cli.Command {
	return &cli.Command{
		Name:  "devices",
		Usage: "List the devices of this machine and their state",
		Description: "Opens every enabled collector, samples each device once and prints a table.\n" +
			"Collectors that are not in use say why. With --kubernetes or --hpc-job-mapping-dir it\n" +
			"says who uses each device, and which of those who know that do not answer.",
		Flags: []cli.Flag{
			timeoutFlag(),
			&cli.BoolFlag{Name: "all", Usage: "List links and cores, and all users of shared devices, too."},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			return devices(ctx, a, cmd.Duration("timeout"), cmd.Bool("all"))
		},
	}
}

func devices(ctx context.Context, a *app, timeout time.Duration, all bool) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	log := a.quietLogger(cfg)
	list, _, err := newCounters(cfg, "").first(ctx, log)
	if err != nil {
		return err
	}
	wanted, err := collectors(cfg, log)
	if err != nil {
		return err
	}
	s := a.newEngine(cfg, wanted, list, nil, log)
	o := newOwners(a, cfg, vendorNames(vendors(cfg, log)), s, nil, log)
	return sampleOnce(ctx, s, o, timeout, func(_ context.Context, st []session.CollectorStatus) error {
		if err := writeDevices(a.out, st, o, all); err != nil {
			return err
		}
		o.writeProblems(a.out, timeout)
		return nil
	})
}

// mostUsers is how many users of a device are listed without --all.
const mostUsers = 4

// writeDevices prints the table of devices, each with its users, then the
// collectors without any. o is nil if it was not asked who uses them.
func writeDevices(w io.Writer, collectors []session.CollectorStatus, o *owners, all bool) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	head, none := "", ""
	if o != nil {
		head, none = "\tUSED BY", "\t-"
	}
	shown, hidden := 0, 0
	for _, c := range collectors {
		for _, d := range c.Devices {
			if !all && (d.Device.Level == field.Link || d.Device.Level == field.Core) {
				hidden++
				continue
			}
			if shown++; shown == 1 {
				fmt.Fprintln(t, "COLLECTOR\tSTATE\tKIND\tGPU\tID\tMODEL\tPCI BUS ID\tREASON"+head)
			}
			dev := &d.Device
			users := o.users(dev, all)
			first := none
			if len(users) > 0 {
				first, users = "\t"+users[0], users[1:]
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s%s\n", c.Name, d.State, kindOf(dev.Level),
				cmp.Or(dev.GPU, "-"), dev.ID, cmp.Or(dev.Model, "-"), cmp.Or(dev.PCIBusID, "-"), d.Reason, first)
			for _, user := range users {
				fmt.Fprintf(t, "\t\t\t\t\t\t\t\t%s\n", user)
			}
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

// users lists who uses a device, the first few unless all are wanted.
func (o *owners) users(d *collector.Device, all bool) []string {
	users := o.describe(d)
	if n := len(users); !all && n > mostUsers {
		users = append(users[:mostUsers-1:mostUsers-1], fmt.Sprintf("and %d more (--all lists them)", n-mostUsers+1))
	}
	return users
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
	case field.ConnectX:
		return "connectx"
	}
	return "other"
}
