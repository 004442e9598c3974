package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
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
			"says who uses each device, and which of those who know that do not answer.\n" +
			"Ends with code 1 if there is no device. For scripts, --output=json and csv list all.",
		Flags: []cli.Flag{
			timeoutFlag(),
			&cli.BoolFlag{Name: "all", Usage: "List links and cores, and all users of shared devices, too."},
			outputFlag(),
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			form := cmd.String("output")
			if err := cmp.Or(noArguments(cmd), checkOutput(form)); err != nil {
				return err
			}
			return devices(ctx, a, cmd.Duration("timeout"), cmd.Bool("all"), form)
		},
	}
}

func devices(ctx context.Context, a *app, timeout time.Duration, all bool, form string) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	log := a.quietLogger(cfg)
	list, _, err := newCounters(a, cfg, "").first(ctx, log)
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
		found := listDevices(st, o)
		err := writeOutput(a.out, form, output{
			table: func(w io.Writer) error {
				if err := writeDevices(w, st, o, all); err != nil {
					return err
				}
				o.writeProblems(w, timeout)
				return nil
			},
			json: found, csv: found.rows(),
		})
		if err == nil && len(found.Devices) == 0 {
			err = errReported
		}
		return err
	})
}

// deviceList is what devices finds, for scripts.
type deviceList struct {
	Devices    []deviceRow    `json:"devices"`
	Collectors []collectorRow `json:"collectors"`
}

type deviceRow struct {
	Collector  string   `json:"collector"`
	State      string   `json:"state"`
	Reason     string   `json:"reason,omitempty"` // in words, unless it is up
	Kind       string   `json:"kind"`
	GPU        string   `json:"gpu,omitempty"`
	ID         string   `json:"id"`
	Model      string   `json:"model,omitempty"`
	PCIAddress string   `json:"pci_bus_id,omitempty"`
	UsedBy     []string `json:"used_by,omitempty"`
}

type collectorRow struct {
	Name   string `json:"name"`
	Up     bool   `json:"up"`
	Reason string `json:"reason,omitempty"` // why it is not in use
}

func listDevices(collectors []session.CollectorStatus, o *owners) deviceList {
	out := deviceList{Devices: []deviceRow{}, Collectors: []collectorRow{}}
	for _, c := range collectors {
		out.Collectors = append(out.Collectors, collectorRow{c.Name, c.Up, c.Reason})
		for _, d := range c.Devices {
			dev := &d.Device
			out.Devices = append(out.Devices, deviceRow{
				Collector: c.Name, State: d.State.String(), Reason: d.Reason, Kind: kindOf(dev.Level),
				GPU: dev.GPU, ID: dev.ID, Model: dev.Model, PCIAddress: dev.PCIBusID, UsedBy: o.users(dev, true),
			})
		}
	}
	return out
}

func (l deviceList) rows() [][]string {
	out := [][]string{{"collector", "state", "reason", "kind", "gpu", "id", "model", "pci_bus_id", "used_by"}}
	for _, d := range l.Devices {
		out = append(out, []string{d.Collector, d.State, d.Reason, d.Kind, d.GPU, d.ID, d.Model, d.PCIAddress, strings.Join(d.UsedBy, "; ")})
	}
	return out
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
