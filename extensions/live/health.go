package live

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/config"
	"warpgauge/pkg/events"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/field"
)

// lineForm is a one-line output of at most longestLine bytes, the limit of node-problem-detector.
// It also fits a node's reason in Slurm.
const (
	lineForm    = "line"
	longestLine = 80
)

// cannotTell is the exit code for unknown health.
const cannotTell = 2

func healthCommand(a *exporter.Program) *cli.Command {
	return &cli.Command{
		Name:  "health",
		Usage: "Report whether the devices of this node are healthy, for people and health checks",
		Description: "Asks the exporter that runs on this machine, or the one at --url, for its verdicts.\n" +
			"Ends with code 0 if none must be taken out of service, 1 if one must, and 2 if it cannot tell:\n" +
			"no exporter answers, the exporter has no verdicts yet, or a device is unknown.\n" +
			"docs/health.md describes states, reasons and actions.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "output", Value: "table", Usage: "table, for people; json, for scripts; line: one line of at most 80 bytes, for health checks.", Validator: func(s string) error {
				if err := config.CheckOutput(s); err != nil && s != lineForm {
					return fmt.Errorf("%w, or %s", err, lineForm)
				}
				return nil
			}},
			&cli.DurationFlag{Name: "timeout", Value: 5 * time.Second, Usage: "Longest time to wait for the exporter."},
		}, config.URLFlags()...),
		OnUsageError: func(ctx context.Context, cmd *cli.Command, err error, sub bool) error {
			return &config.ExitError{Code: cannotTell, Err: config.UsageError(ctx, cmd, err, sub)}
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			err := printHealth(ctx, a, cmd)
			if exit := (*config.ExitError)(nil); err == nil || errors.Is(err, config.ErrReported) || errors.As(err, &exit) {
				return err
			}
			return &config.ExitError{Code: cannotTell, Err: err}
		},
	}
}

func printHealth(ctx context.Context, a *exporter.Program, cmd *cli.Command) error {
	form := cmd.String("output")
	if err := config.NoArguments(cmd); err != nil {
		return err
	}
	found, err := askHealth(ctx, a, cmd)
	if err == nil && len(found.Devices) == 0 {
		err = errors.New("no verdict on any device: none is read, or health is off")
	}
	if err == nil && found.State != events.OK.String() && !slices.ContainsFunc(found.Devices, func(d apiv1.DeviceHealth) bool { return d.State == found.State }) {
		err = fmt.Errorf("the verdict on the node is %q, but no device has it", found.State)
	}
	if err != nil {
		if form == lineForm {
			return errors.Join(&config.ExitError{Code: cannotTell, Err: config.ErrReported}, writeLine(a.Out, "cannot tell: "+err.Error()))
		}
		return err
	}
	var bad, unknown []apiv1.DeviceHealth
	for _, d := range found.Devices {
		switch {
		case events.OutOfService(d.State, events.Action(d.Action)):
			bad = append(bad, d)
		case d.State != events.OK.String() && d.State != events.Degraded.String(): // of another version, too
			unknown = append(unknown, d)
		}
	}
	switch {
	case form != lineForm:
		err = config.WriteOutput(a.Out, form, found, func(w io.Writer) error { return writeHealth(w, found) })
	case len(bad) > 0:
		err = writeLine(a.Out, "", summaries(bad)...)
	case len(unknown) > 0:
		err = writeLine(a.Out, "cannot tell: ", summaries(unknown)...)
	default:
		err = writeLine(a.Out, config.Counted(len(found.Devices), "device")+", none is to be taken out of service")
	}
	switch {
	case err != nil:
		return err
	case len(bad) > 0:
		return config.ErrReported
	case len(unknown) > 0:
		return &config.ExitError{Code: cannotTell, Err: config.ErrReported}
	}
	return nil
}

func askHealth(ctx context.Context, a *exporter.Program, cmd *cli.Command) (*apiv1.Health, error) {
	cfg, err := a.Config()
	if err != nil {
		return nil, err
	}
	c, err := Client(ctx, a, cmd, cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, cmd.Duration("timeout"))
	defer cancel()
	return c.Health(ctx)
}

// summaries returns problem and action of each board, and of each part whose board is well: "GPU 3 xid_79: reboot".
func summaries(of []apiv1.DeviceHealth) (out []string) {
	for i := range of {
		d := &of[i]
		if slices.ContainsFunc(of, func(o apiv1.DeviceHealth) bool { return strings.HasPrefix(d.ID, o.ID+"/") }) {
			continue
		}
		text := healthName(d) + " " + cmp.Or(d.Reason, d.State)
		if d.Action != "" && d.Action != string(events.ActionNone) {
			text += ": " + d.Action
		}
		out = append(out, text)
	}
	return out
}

// writeLine writes as many parts as fit, and the number of further parts.
func writeLine(w io.Writer, head string, parts ...string) error {
	line := head
	for i, p := range parts {
		rest := ""
		if left := len(parts) - i - 1; left > 0 {
			rest = fmt.Sprintf("; %d more", left)
		}
		if i > 0 && len(line)+len("; ")+len(p)+len(rest) > longestLine {
			line += fmt.Sprintf("; %d more", len(parts)-i)
			break
		}
		if i > 0 {
			line += "; "
		}
		line += p
	}
	text := bytes.Map(field.Printable, bytes.ReplaceAll([]byte(line), []byte("\n"), []byte(" ")))
	_, err := w.Write(append(bytes.ToValidUTF8(text[:min(len(text), longestLine)], nil), '\n'))
	return err
}

func writeHealth(w io.Writer, h *apiv1.Health) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "STATE\tGPU\tID\tSINCE\tREASON\tACTION\tWHAT")
	for i := range h.Devices {
		d, since := &h.Devices[i], "-"
		if d.Since != nil {
			since = stamp(*d.Since)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", d.State, cmp.Or(d.GPU, "-"), d.ID, since, cmp.Or(d.Reason, "-"), cmp.Or(d.Action, "-"), cmp.Or(d.Text, "-"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i := range h.Devices {
		writeConditions(t, &h.Devices[i])
	}
	return t.Flush()
}

// writeConditions writes the conditions and evidence of a device.
func writeConditions(t *tabwriter.Writer, d *apiv1.DeviceHealth) {
	for i := range d.Conditions {
		c := &d.Conditions[i]
		fmt.Fprintf(t, "\n%s %s: %s, since %s, seen last %s\n", healthName(d), c.Reason, c.Text, stamp(c.Since), stamp(c.Last))
		for _, e := range c.Evidence {
			fmt.Fprintf(t, "  %s\t%s\t%s\n", stamp(e.Time), e.Source, e.Text)
		}
	}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// healthName returns a device's display name.
func healthName(d *apiv1.DeviceHealth) string {
	if d.GPU != "" && !strings.Contains(d.ID, "/") { // not a part of a GPU
		return "GPU " + d.GPU
	}
	return d.ID
}
