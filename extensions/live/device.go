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

	"github.com/urfave/cli/v3"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/cmdline"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/field"
)

// allDevices stands for every device in devices GPU.
const allDevices = "all"

// showFields prints the fields of one GPU and its parts, or of all devices: values, and
// reasons where there are none. patterns choose fields.
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
	err = cmdline.WriteOutput(a.Out, cmd.String("output"), cmdline.Output{
		Table: func(w io.Writer) error { return writeFields(w, found) }, JSON: map[string]any{"devices": found}, CSV: fieldRows(found),
	})
	if err == nil && !slices.ContainsFunc(found, func(d deviceFields) bool {
		return slices.ContainsFunc(d.Fields, func(f apiv1.Field) bool {
			return f.Absent == nil || f.Absent.Reason != string(collector.ReasonNotListed)
		})
	}) {
		err = cmdline.ErrReported
	}
	return err
}

// deviceFields are the fields of a device.
type deviceFields struct {
	Kind string `json:"kind"`
	GPU  string `json:"gpu,omitempty"`
	apiv1.DeviceFields
}

// is reports whether a user means a device, or the one that it is part of, by which: its
// index, UUID or PCI address.
func is(which, gpu, uuid, id, pci string) bool {
	return which == allDevices || which == gpu || which == uuid || which == id ||
		pci != "" && strings.EqualFold(shortAddress(which), shortAddress(pci))
}

// shortAddress is a PCI address without the domain if that is 0, which Linux writes
// with four digits and NVIDIA with eight.
func shortAddress(text string) string {
	if domain, rest, ok := strings.Cut(text, ":"); ok && strings.Contains(rest, ":") {
		if n, err := strconv.ParseUint(domain, 16, 32); err == nil {
			return strconv.FormatUint(n, 16) + ":" + strings.TrimSuffix(rest, ".0")
		}
	}
	return "0:" + strings.TrimSuffix(text, ".0")
}

// fieldsOf asks for the fields of the devices that a user means.
func fieldsOf(ctx context.Context, n answers, which string, patterns []string) ([]deviceFields, error) {
	all, err := n.Devices(ctx)
	if err != nil {
		return nil, err
	}
	of := map[string]*apiv1.Device{}
	for i := range all.Devices {
		if d := &all.Devices[i]; is(which, d.GPU, d.UUID, d.ID, d.PCIBusID) {
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
	answer, err := n.Fields(ctx, ids, patterns)
	if err != nil {
		return nil, err
	}
	var out []deviceFields
	for _, d := range answer.Devices {
		if dev := of[d.ID]; dev != nil && (len(d.Fields) > 0 || dev.Parent == "") {
			out = append(out, deviceFields{Kind: dev.Kind, GPU: dev.GPU, DeviceFields: d})
		}
	}
	return out, nil
}

// named reports whether a name is one of the patterns, in which * is any text.
func named(name string, patterns []string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
		ok, _ := path.Match(p, name) // a name has none of the characters that could make it a bad one
		return ok || p == name
	})
}

// addUnlisted adds the patterns that name a field of the catalogue and that no device is
// asked for, as fields that the list does not have.
func addUnlisted(found []deviceFields, patterns []string) {
	for _, p := range patterns {
		has := func(d deviceFields) bool {
			return slices.ContainsFunc(d.Fields, func(f apiv1.Field) bool { return named(f.Name, []string{p}) })
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
	for i := range found {
		d := &found[i]
		if i > 0 {
			fmt.Fprintln(w) //nolint:errcheck // the last one shows
		}
		title := d.Kind + " " + d.ID
		if d.GPU != "" && d.Kind == field.GPU.String() {
			title = d.Kind + " " + d.GPU + ", " + d.ID
		}
		if len(d.Fields) > 0 && d.Fields[0].Collector != "" {
			title += ", by " + d.Fields[0].Collector
		}
		fmt.Fprintln(w, title) //nolint:errcheck // as above
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(t, "FIELD\tVALUE\tUNIT\tWHY NOT")
		for j := range d.Fields {
			f := &d.Fields[j]
			value, why := valueOf(f), ""
			if f.Absent != nil {
				value, why = "-", f.Absent.Reason
				if f.Absent.Detail != "" {
					why += ": " + f.Absent.Detail
				}
			}
			fmt.Fprintf(t, "%s%s\t%s\t%s\t%s\n", f.Name, labelsOf(f), value, cmp.Or(f.Unit, "-"), why)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// valueOf is a field's value in words.
func valueOf(f *apiv1.Field) string {
	switch {
	case f.Value != nil:
		return strconv.FormatFloat(*f.Value, 'f', -1, 64)
	case f.Type == field.Label.String():
		return f.Text
	}
	return ""
}

// labelsOf are the labels that tell series of a field apart.
func labelsOf(f *apiv1.Field) string {
	if f.Type == field.Label.String() || len(f.Labels) == 0 {
		return ""
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(f.Labels)) {
		parts = append(parts, fmt.Sprintf("%s=%q", name, f.Labels[name]))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func fieldRows(found []deviceFields) [][]string {
	out := [][]string{{"kind", "gpu", "id", "collector", "field", "labels", "value", "unit", "reason", "detail"}}
	for _, d := range found {
		for i := range d.Fields {
			f := &d.Fields[i]
			row := []string{d.Kind, d.GPU, d.ID, f.Collector, f.Name, labelsOf(f), valueOf(f), f.Unit, "", ""}
			if f.Absent != nil {
				row[6], row[8], row[9] = "", f.Absent.Reason, f.Absent.Detail
			}
			out = append(out, row)
		}
	}
	return out
}
