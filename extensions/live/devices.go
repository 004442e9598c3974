package live

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
)

// Commands implements exporter.Commander.
func (e *Extension) Commands(a *exporter.Program) []*cli.Command {
	return []*cli.Command{devicesCommand(a), onceCommand(a), healthCommand(a)}
}

func devicesCommand(a *exporter.Program) *cli.Command {
	return &cli.Command{
		Name:      "devices",
		Usage:     "List the devices of this machine and their state, or the fields of one GPU",
		ArgsUsage: "[GPU [FIELD...]]",
		Description: "Asks the exporter that runs on this machine, or the one at --url. If none answers, it opens\n" +
			"every enabled collector and samples each device once. Standard error names the source.\n" +
			"It shows why a collector is not in use. With --kubernetes or --hpc-job-mapping-dir, of\n" +
			"the exporter or here, it lists the users of each device.\n" +
			"With GPU, an index, UUID, PCI address or all, it lists each field of the field list, or those\n" +
			"named (* is any text), with its value or the reason for its absence.\n" +
			"Ends with code 1 if there is no device. For scripts, --output=json lists all.",
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "all", Usage: "List links and cores, and all users of shared devices, too."},
			config.OutputFlag(), config.TimeoutFlag(10*time.Second, "Longest time to wait for libraries and devices."),
		}, config.URLFlags()...),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if args := cmd.Args().Slice(); len(args) > 0 {
				return showFields(ctx, a, cmd, args[0], args[1:])
			}
			return showDevices(ctx, a, cmd)
		},
	}
}

func showDevices(ctx context.Context, a *exporter.Program, cmd *cli.Command) error {
	var found deviceList
	err := askOrRead(ctx, a, cmd, func(ctx context.Context, n answers, p *exporter.Pipeline) error {
		all, err := n.Devices(ctx)
		if err != nil {
			return err
		}
		found = deviceList{Devices: []deviceRow{}, Collectors: all.Collectors}
		for i := range all.Devices {
			row := deviceRow{Device: &all.Devices[i]}
			for _, u := range row.Users {
				text := "job " + u.Job
				if u.Job == "" {
					text = "pod " + u.Namespace + "/" + u.Pod + ", container " + u.Container
				}
				row.UsedBy = append(row.UsedBy, text)
			}
			if found.mapped = p != nil && p.Owners != nil; found.mapped {
				row.UsedBy = p.UsedBy(row.ID) // includes users that the API omits
			}
			found.Devices = append(found.Devices, row)
		}
		if c, ok := n.(*apiv1.Client); ok {
			writeMappings(ctx, c, &found.problems)
		} else {
			p.Owners.WriteProblems(&found.problems, cmd.Duration("timeout"))
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = config.WriteOutput(a.Out, cmd.String("output"), &found, func(w io.Writer) error { return found.writeTable(w, cmd.Bool("all")) })
	if err == nil && len(found.Devices) == 0 {
		err = config.ErrReported
	}
	return err
}

// writeMappings names the mappings that fail in the exporter. Only its page has them, if it has metrics of its own.
func writeMappings(ctx context.Context, c *apiv1.Client, w io.Writer) {
	var page strings.Builder
	_ = c.Page(ctx, exposition.Text.ContentType(), &page) // the devices are known without it
	for line := range strings.Lines(page.String()) {
		if strings.HasPrefix(line, "warpgauge_mapping_up{") && strings.HasSuffix(line, "} 0\n") {
			fmt.Fprintf(w, "users can be missing, warpctl doctor says why: %s", line) //nolint:errcheck // a strings.Builder
		}
	}
}

// deviceList is the result of the command devices.
type deviceList struct {
	Devices    []deviceRow       `json:"devices"`
	Collectors []apiv1.Collector `json:"collectors"`

	mapped   bool // the users of the devices are known
	problems strings.Builder
}

type deviceRow struct {
	*apiv1.Device
	UsedBy []string `json:"used_by,omitempty"`
}

// maxUsers bounds the listed users of a device without --all.
const maxUsers = 4

// writeTable prints the devices with their users, then the collectors without devices.
func (l *deviceList) writeTable(w io.Writer, all bool) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	head, none := "", ""
	if l.mapped || slices.ContainsFunc(l.Devices, func(d deviceRow) bool { return len(d.UsedBy) > 0 }) {
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
		if n := len(users); !all && n > maxUsers {
			users = append(users[:maxUsers-1:maxUsers-1], fmt.Sprintf("and %d more (--all lists them)", n-maxUsers+1))
		}
		first := none
		if len(users) > 0 {
			first = "\t" + strings.Join(users, "\n\t\t\t\t\t\t\t\t")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s%s\n", d.Collector, d.Status.Word, d.Kind,
			cmp.Or(d.GPU, "-"), d.ID, cmp.Or(d.Model, "-"), cmp.Or(d.PCIBusID, "-"), d.Status.Why, first)
	}
	if hidden > 0 {
		fmt.Fprintf(t, "%s more: links and cores (--all lists them)\n", config.Counted(hidden, "device"))
	}
	if shown+hidden == 0 {
		fmt.Fprintln(t, "no device found")
	}
	for _, c := range l.Collectors {
		if c.Reason != "" {
			fmt.Fprintf(t, "%s is %s: %s\n", c.Name, map[bool]string{true: "in use", false: "not in use"}[c.Up], c.Reason)
		}
	}
	_, _ = fmt.Fprint(t, l.problems.String())
	return t.Flush()
}

// allDevices is the argument of devices GPU for every device.
const allDevices = "all"

// showFields prints values, or reasons for missing ones, of one GPU and its parts, or of all
// devices. patterns select fields.
func showFields(ctx context.Context, a *exporter.Program, cmd *cli.Command, which string, patterns []string) error {
	var found []deviceFields
	err := askOrRead(ctx, a, cmd, func(ctx context.Context, n answers, _ *exporter.Pipeline) (err error) {
		found, err = fieldsOf(ctx, n, which, patterns)
		return err
	})
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("no device is %q: write a GPU's index, UUID or PCI address, or all; warpgauge devices lists them", which)
	}
	addUnlisted(found, patterns)
	err = config.WriteOutput(a.Out, cmd.String("output"), map[string]any{"devices": found}, func(w io.Writer) error { return writeFields(w, found) })
	if err == nil && !slices.ContainsFunc(found, func(d deviceFields) bool {
		return slices.ContainsFunc(d.Fields, func(f apiv1.Field) bool {
			return f.Absent == nil || f.Absent.Reason != string(collector.ReasonNotListed)
		})
	}) {
		err = config.ErrReported
	}
	return err
}

// deviceFields holds the fields of a device.
type deviceFields struct {
	Kind string `json:"kind"`
	GPU  string `json:"gpu,omitempty"`
	apiv1.DeviceFields
}

// shortAddress returns a PCI address without a zero domain, which Linux writes with four digits and NVIDIA with eight.
func shortAddress(text string) string {
	if domain, rest, ok := strings.Cut(text, ":"); ok && strings.Contains(rest, ":") {
		if n, err := strconv.ParseUint(domain, 16, 32); err == nil {
			return strconv.FormatUint(n, 16) + ":" + strings.TrimSuffix(rest, ".0")
		}
	}
	return "0:" + strings.TrimSuffix(text, ".0")
}

// fieldsOf returns the fields of the devices that match which: the index, UUID or PCI address of a device or of its parent.
func fieldsOf(ctx context.Context, n answers, which string, patterns []string) (out []deviceFields, err error) {
	all, err := n.Devices(ctx)
	if err != nil {
		return nil, err
	}
	of := map[string]*apiv1.Device{}
	for i := range all.Devices {
		d := &all.Devices[i]
		if which == allDevices || which == d.GPU || which == d.UUID || which == d.ID || d.PCIBusID != "" && strings.EqualFold(shortAddress(which), shortAddress(d.PCIBusID)) {
			of[d.ID] = d
		}
	}
	if len(of) == 0 {
		return nil, nil
	}
	var ids []string
	if which != allDevices {
		ids = slices.Sorted(maps.Keys(of))
	}
	answer, err := n.Fields(ctx, ids, nil) // without patterns: the API refuses unknown names, which addUnlisted explains
	if err != nil {
		return nil, err
	}
	for _, d := range answer.Devices {
		d.Fields = slices.DeleteFunc(d.Fields, func(f apiv1.Field) bool { return len(patterns) > 0 && !matches(f, patterns...) })
		if dev := of[d.ID]; dev != nil && (len(d.Fields) > 0 || dev.Parent == "") {
			out = append(out, deviceFields{Kind: dev.Kind, GPU: dev.GPU, DeviceFields: d})
		}
	}
	return out, nil
}

// matches reports whether a field's name matches a pattern. A malformed pattern only matches itself.
func matches(f apiv1.Field, patterns ...string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, _ := path.Match(p, f.Name) // an error does not match
		return ok || p == f.Name
	})
}

// addUnlisted adds catalogue fields that match a pattern and are in no device's list, marked as not listed.
func addUnlisted(found []deviceFields, patterns []string) {
	for _, p := range patterns {
		has := func(d deviceFields) bool {
			return slices.ContainsFunc(d.Fields, func(f apiv1.Field) bool { return matches(f, p) })
		}
		if strings.Contains(p, "*") || slices.ContainsFunc(found, has) {
			continue
		}
		detail := "the field list does not have it: add it, see warpgauge fields " + p
		if _, _, ok := field.ByName(p); !ok {
			detail = "there is no such field"
			if near, ok := field.Suggest(p); ok {
				detail += ": did you mean " + near + "?"
			}
		}
		for i := range found {
			if found[i].Kind == field.GPU.String() {
				found[i].Fields = append(found[i].Fields, apiv1.Field{Name: p, Absent: &apiv1.Absence{Reason: string(collector.ReasonNotListed), Detail: detail}})
			}
		}
	}
}

// writeFields prints a table for each device.
func writeFields(w io.Writer, found []deviceFields) error {
	for i, d := range found {
		title := d.Kind + " " + d.ID
		if d.GPU != "" && d.Kind == field.GPU.String() {
			title = d.Kind + " " + d.GPU + ", " + d.ID
		}
		if len(d.Fields) > 0 && d.Fields[0].Collector != "" {
			title += ", by " + d.Fields[0].Collector
		}
		if i > 0 {
			title = "\n" + title
		}
		fmt.Fprintln(w, title) //nolint:errcheck // the last write reports errors
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(t, "FIELD\tVALUE\tUNIT\tWHY NOT")
		for i := range d.Fields {
			writeField(t, &d.Fields[i])
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func writeField(w io.Writer, f *apiv1.Field) {
	value, why, labels := "", "", []string{}
	switch {
	case f.Absent != nil:
		value, why = "-", f.Absent.Reason
		if f.Absent.Detail != "" {
			why += ": " + f.Absent.Detail
		}
	case f.Value != nil:
		value = strconv.FormatFloat(*f.Value, 'f', -1, 64)
	case f.Type == field.Label.String():
		value = f.Text
	}
	if f.Type != field.Label.String() {
		for _, name := range slices.Sorted(maps.Keys(f.Labels)) {
			labels = append(labels, fmt.Sprintf("%s=%q", name, f.Labels[name]))
		}
	}
	text := f.Name
	if len(labels) > 0 {
		text += "{" + strings.Join(labels, ",") + "}"
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", text, value, cmp.Or(f.Unit, "-"), why) //nolint:errcheck // the last write reports errors
}
