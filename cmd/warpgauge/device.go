package main

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

	"warpgauge/pkg/exporter"

	"github.com/urfave/cli/v3"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/cmdline"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// allDevices stands for every device in devices GPU.
const allDevices = "all"

// showDevice prints the fields of one GPU and its parts, or of all devices: values, and
// reasons where there are none. patterns choose fields.
func showDevice(ctx context.Context, a *exporter.Program, cmd *cli.Command, which string, patterns []string) error {
	cfg, err := a.Config()
	if err != nil {
		return err
	}
	var found []deviceFields
	asked, err := asksExporter(ctx, a, cmd, cfg, func(ctx context.Context, c *apiv1.Client) error {
		found, err = askFields(ctx, c, which, patterns)
		return err
	})
	if err != nil {
		return err
	}
	if !asked {
		parsed, err := a.NewFiles(cfg, "", nil).First(ctx, a.QuietLogger(cfg))
		if err != nil {
			return err
		}
		err = supplied(ctx, a, cfg, parsed.Fields, cmd.Duration("timeout"), func(_ []session.CollectorStatus, r exporter.Report, _ *view.View) error {
			found = readFields(&r, which, patterns)
			return nil
		})
		if err != nil {
			return err
		}
	}
	if len(found) == 0 {
		return fmt.Errorf("no device is %q: write a GPU's index, UUID or PCI address, or all; warpgauge devices lists them", which)
	}
	addUnlisted(found, patterns)
	err = cmdline.WriteOutput(a.Out, cmd.String("output"), cmdline.Output{
		Table: func(w io.Writer) error { return writeFields(w, found) }, JSON: deviceReport{found}, CSV: fieldRows(found),
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

// deviceReport is the result of the command devices for one GPU, for scripts.
type deviceReport struct {
	Devices []deviceFields `json:"devices"`
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

// askFields asks an exporter.
func askFields(ctx context.Context, c *apiv1.Client, which string, patterns []string) ([]deviceFields, error) {
	all, err := c.Devices(ctx)
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
	answer, err := c.Fields(ctx, ids, patterns)
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

// readFields takes them from a Report.
func readFields(r *exporter.Report, which string, patterns []string) []deviceFields {
	var out []deviceFields
	for i := range r.Devices {
		d := &r.Devices[i]
		dev := &d.Device
		if !is(which, dev.GPU, dev.UUID, dev.ID, dev.PCIBusID) {
			continue
		}
		of := deviceFields{Kind: dev.Level.String(), GPU: dev.GPU, DeviceFields: apiv1.DeviceFields{ID: dev.ID, Fields: []apiv1.Field{}}}
		for j := range d.Fields {
			if f := &d.Fields[j]; named(f.Name, patterns) {
				of.Fields = append(of.Fields, apiFields(d.Collector, f)...)
			}
		}
		if len(of.Fields) > 0 || dev.Parent == "" {
			out = append(out, of)
		}
	}
	return out
}

// apiFields are a field in the form of the API: one for each series.
func apiFields(of string, f *exporter.ReportField) []apiv1.Field {
	one := apiv1.Field{Name: f.Name, Metric: f.Name, Help: f.Help, Type: f.Type.String(), Unit: unitOf(f.Field), Collector: of}
	switch {
	case f.Absent.Reason != "":
		one.Absent = &apiv1.Absence{Reason: string(f.Absent.Reason), Detail: f.Absent.Detail}
	case f.Type == field.Label:
		one.Metric, one.Labels = "", map[string]string{f.Name: f.Text}
	}
	if len(f.Values) == 0 {
		return []apiv1.Field{one}
	}
	var out []apiv1.Field
	for _, v := range f.Values {
		one := one
		one.Value, one.Labels = &v.Value, map[string]string{}
		for _, l := range v.Labels {
			one.Labels[l.Name] = l.Value
		}
		out = append(out, one)
	}
	return out
}

// unitOf is the unit of a field's values, if the catalogue says it.
func unitOf(f *field.Field) string {
	if f.Scale == 1 {
		return f.Desc.Unit
	}
	return ""
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
		return f.Labels[f.Name]
	}
	return "counted" // from events
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
