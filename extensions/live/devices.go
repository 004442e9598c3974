package live

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/cmdline"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/field"
	"warpgauge/pkg/lists"
)

// Commands implements exporter.Commander.
func (e *Extension) Commands(a *exporter.Program) []*cli.Command {
	return []*cli.Command{devicesCommand(a)}
}

func devicesCommand(a *exporter.Program) *cli.Command {
	return &cli.Command{
		Name:      "devices",
		Usage:     "List the devices of this machine and their state, or the fields of one GPU",
		ArgsUsage: "[GPU [FIELD...]]",
		Description: "Asks the exporter that runs on this machine, or the one at --url. If none answers, it opens\n" +
			"every enabled collector and samples each device once. Standard error says which it did.\n" +
			"Collectors that are not in use say why. With --kubernetes or --hpc-job-mapping-dir, of\n" +
			"the exporter or here, it says who uses each device.\n" +
			"With GPU, an index, UUID, PCI address or all, it lists each field of the field list, or those\n" +
			"named (* is any text), with its value or why it has none.\n" +
			"Ends with code 1 if there is no device. For scripts, --output=json and csv list all.",
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "all", Usage: "List links and cores, and all users of shared devices, too."},
			cmdline.OutputFlag(), cmdline.TimeoutFlag(10*time.Second, "Longest time to wait for libraries and devices."),
		}, cmdline.URLFlags()...),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := cmdline.CheckOutput(cmd.String("output")); err != nil {
				return err
			}
			if args := cmd.Args().Slice(); len(args) > 0 {
				return showFields(ctx, a, cmd, args[0], args[1:])
			}
			return showDevices(ctx, a, cmd)
		},
	}
}

func showDevices(ctx context.Context, a *exporter.Program, cmd *cli.Command) error {
	var found deviceList
	var problems strings.Builder
	mapped := false // it was asked who uses the devices
	err := askOrRead(ctx, a, cmd, func(ctx context.Context, n answers, p *exporter.Pipeline) error {
		all, err := n.Devices(ctx)
		if err != nil {
			return err
		}
		found = newDeviceList(all)
		if p != nil && p.Owners != nil {
			mapped = true
			for i := range found.Devices { // more than the API tells
				found.Devices[i].UsedBy = p.UsedBy(found.Devices[i].ID)
			}
			p.Owners.WriteProblems(&problems, cmd.Duration("timeout"))
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = cmdline.WriteOutput(a.Out, cmd.String("output"), cmdline.Output{
		Table: func(w io.Writer) error {
			if err := found.writeTable(w, cmd.Bool("all"), mapped); err != nil {
				return err
			}
			_, err := io.WriteString(w, problems.String())
			return err
		},
		JSON: found, CSV: found.rows(),
	})
	if err == nil && len(found.Devices) == 0 {
		err = cmdline.ErrReported
	}
	return err
}

// deviceList is the result of the command devices, for scripts.
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

func newDeviceList(d *apiv1.Devices) deviceList {
	out := deviceList{Devices: []deviceRow{}, Collectors: []collectorRow{}}
	for _, c := range d.Collectors {
		out.Collectors = append(out.Collectors, collectorRow{c.Name, c.Up, c.Reason})
	}
	for i := range d.Devices {
		dev := &d.Devices[i]
		row := deviceRow{
			Collector: dev.Collector, State: dev.State, Reason: dev.Reason, Kind: dev.Kind,
			GPU: dev.GPU, ID: dev.ID, Model: dev.Model, PCIAddress: dev.PCIBusID,
		}
		for _, u := range dev.Users {
			text := "job " + u.Job
			if u.Job == "" {
				text = "pod " + u.Namespace + "/" + u.Pod + ", container " + u.Container
			}
			row.UsedBy = append(row.UsedBy, text)
		}
		out.Devices = append(out.Devices, row)
	}
	return out
}

func (l *deviceList) rows() [][]string {
	out := [][]string{{"collector", "state", "reason", "kind", "gpu", "id", "model", "pci_bus_id", "used_by"}}
	for _, d := range l.Devices {
		out = append(out, []string{d.Collector, d.State, d.Reason, d.Kind, d.GPU, d.ID, d.Model, d.PCIAddress, strings.Join(d.UsedBy, "; ")})
	}
	return out
}

// mostUsers is how many users of a device are listed without --all.
const mostUsers = 4

// writeTable prints the table of devices, each with its users, then the collectors
// without any. mapped says that it was asked who uses the devices.
func (l *deviceList) writeTable(w io.Writer, all, mapped bool) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	mapped = mapped || slices.ContainsFunc(l.Devices, func(d deviceRow) bool { return len(d.UsedBy) > 0 })
	head, none := "", ""
	if mapped {
		head, none = "\tUSED BY", "\t-"
	}
	shown, hidden := 0, 0
	for _, d := range l.Devices {
		if !all && (d.Kind == field.Link.String() || d.Kind == field.Core.String()) {
			hidden++
			continue
		}
		if shown++; shown == 1 {
			fmt.Fprintln(t, "COLLECTOR\tSTATE\tKIND\tGPU\tID\tMODEL\tPCI BUS ID\tREASON"+head)
		}
		users := d.UsedBy
		if n := len(users); !all && n > mostUsers {
			users = append(users[:mostUsers-1:mostUsers-1], fmt.Sprintf("and %d more (--all lists them)", n-mostUsers+1))
		}
		first := none
		if len(users) > 0 {
			first, users = "\t"+users[0], users[1:]
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s%s\n", d.Collector, d.State, d.Kind,
			cmp.Or(d.GPU, "-"), d.ID, cmp.Or(d.Model, "-"), cmp.Or(d.PCIAddress, "-"), d.Reason, first)
		for _, user := range users {
			fmt.Fprintf(t, "\t\t\t\t\t\t\t\t%s\n", user)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if hidden > 0 {
		fmt.Fprintf(w, "%s more: links and cores (--all lists them)\n", lists.Count(hidden, "device")) //nolint:errcheck // as above
	}
	if shown+hidden == 0 {
		fmt.Fprintln(w, "no device found") //nolint:errcheck // as above
	}
	for _, c := range l.Collectors {
		if !c.Up {
			fmt.Fprintf(w, "%s is not in use: %s\n", c.Name, c.Reason) //nolint:errcheck // as above
		}
	}
	return nil
}
