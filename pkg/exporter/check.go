package exporter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
)

func checkCommand(a *Program) *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "Check a counters CSV, and what this machine can supply of it",
		ArgsUsage: "[FILE]",
		Description: "Lists all problems of FILE, or of the file that the exporter would use, with line and\n" +
			"column. Then it opens every enabled collector, samples each device, and lists the fields\n" +
			"without a value, with the reasons. Ends with code 1 if the file has errors.\n" +
			"With --guard, it checks FILE as a list from a server: lines that the guard of this node\n" +
			"would refuse (--remote-limit, --remote-allow) are errors, too. It does not measure the\n" +
			"cost, which the guard measures in service.",
		Flags: []cli.Flag{timeoutFlag(), config.OutputFlag(), &cli.BoolFlag{Name: "guard", Usage: "Check FILE as a list from a server (docs/remote.md)."}},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Len() > 1 {
				return fmt.Errorf("check takes one file, not %d", cmd.Args().Len())
			}
			if cmd.Bool("guard") && cmd.Args().Len() == 0 {
				return errors.New("--guard: name the FILE that is to be delivered")
			}
			return check(ctx, a, cmd.Args().First(), cmd.Bool("guard"), cmd.Duration("timeout"), cmd.String("output"))
		},
	}
}

func check(ctx context.Context, a *Program, path string, guarded bool, timeout time.Duration, form string) error {
	cfg, err := a.Config()
	if err != nil {
		return err
	}
	a.logNotices(NewLogger(cfg, a.Log))
	files := a.NewFiles(cfg, path, nil)
	in, err := files.Read(ctx)
	if err != nil {
		return err
	}
	parsed, problems := a.ParseList(in, files, guarded)
	wrong, err := problems(nil)
	found := &checked{
		File: in.Name, Fields: len(parsed.Fields.Fields), Problems: []problemRow{}, Collectors: []collectorRow{}, Devices: []checkedRow{}, Nowhere: []absentRow{},
	}
	if found.setProblems(wrong); err != nil && found.Errors == 0 { // no problem of the file explains the error
		return err
	}
	broken := err != nil
	if !broken {
		p, err := a.NewPipeline(cfg, parsed.Fields, a.QuietLogger(cfg))
		if err != nil {
			return err
		}
		_ = p.Sample(ctx, timeout, func(ctx context.Context) error {
			found.sample(ctx, p)
			if wrong, err := problems(p.Board.Load()); err != nil { // the guard repeats the check, with devices
				found.setProblems(wrong)
				broken = true
			}
			return nil
		})
	}
	err = config.WriteOutput(a.Out, form, found, func(w io.Writer) error { return found.write(w, broken) })
	if err == nil && broken {
		return config.ErrReported
	}
	return err
}

// checked is the result of check in JSON.
type checked struct {
	File       string         `json:"file"`
	Fields     int            `json:"fields"`
	Errors     int            `json:"errors"`
	Warnings   int            `json:"warnings"`
	Problems   []problemRow   `json:"problems"`
	Collectors []collectorRow `json:"collectors"`
	Devices    []checkedRow   `json:"devices"`
	// Added and Named hold, by collector, the readings that health and the names of --field-names add.
	Added map[string][]string `json:"health,omitempty"`
	Named map[string][]string `json:"names,omitempty"`
	// Nowhere lists fields that apply to no device of the node.
	Nowhere []absentRow `json:"nowhere"`
}

type problemRow struct {
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Severity string `json:"severity"`
	Message  string `json:"message"`
	text     string
}

type collectorRow struct {
	Name   string `json:"name"`
	Up     bool   `json:"up"`
	Reason string `json:"reason,omitempty"` // why it is not in use
}

// checkedRow is a device with its fields that have no value.
type checkedRow struct {
	Collector string      `json:"collector"`
	Kind      string      `json:"kind"`
	GPU       string      `json:"gpu,omitempty"`
	ID        string      `json:"id"`
	Supplied  int         `json:"supplied"` // fields
	Asked     int         `json:"asked"`    // fields of the list that such a device can have
	Absent    []absentRow `json:"absent"`
}

type absentRow struct {
	Field  string `json:"field"`
	Reason string `json:"reason"`
	Detail string `json:"detail,omitempty"`
}

// setProblems replaces the problems of the file.
func (c *checked) setProblems(all []field.Problem) {
	c.Errors, c.Warnings, c.Problems = 0, 0, make([]problemRow, 0, len(all))
	for i := range all {
		p := &all[i]
		if p.Severity == field.Error {
			c.Errors++
		} else {
			c.Warnings++
		}
		c.Problems = append(c.Problems, problemRow{p.Line, p.Column, p.Severity.String(), p.Message, p.Error()})
	}
}

// sample samples the devices and records the fields that they lack.
func (c *checked) sample(ctx context.Context, p *Pipeline) {
	r := p.AwaitValues(ctx, 1, ValuesPatience)
	c.Added, c.Named = map[string][]string{}, map[string][]string{}
	for _, s := range p.Engine.Status() {
		c.Collectors = append(c.Collectors, collectorRow{s.Name, s.Up, s.Reason})
		for dialect, to := range map[bool]map[string][]string{false: c.Added, true: c.Named} {
			if added := p.Added(s.Name, dialect); len(added) > 0 {
				to[s.Name] = added
			}
		}
	}
	for i := range r.Devices {
		d := &r.Devices[i]
		row := checkedRow{Collector: d.Collector, Kind: d.Device.Level.String(), GPU: d.Device.GPU, ID: d.Device.ID, Asked: len(d.Fields), Absent: []absentRow{}}
		for _, f := range d.Fields {
			if e := f.Absent; e.Reason != "" {
				row.Absent = append(row.Absent, absentRow{f.Name, string(e.Reason), e.Detail})
			}
		}
		row.Supplied = row.Asked - len(row.Absent)
		c.Devices = append(c.Devices, row)
	}
	for _, f := range r.Nowhere {
		c.Nowhere = append(c.Nowhere, absentRow{f.Name, string(f.Absent.Reason), f.Absent.Detail})
	}
}

// write prints the findings for people. broken means that no device was sampled.
func (c *checked) write(w io.Writer, broken bool) error {
	for _, p := range c.Problems {
		fmt.Fprintln(w, p.text) //nolint:errcheck // the last write returns the error
	}
	_, err := fmt.Fprintf(w, "%s: %s, %s, %s\n", c.File, config.Counted(c.Fields, "field"), config.Counted(c.Errors, "error"), config.Counted(c.Warnings, "warning"))
	if broken || err != nil {
		return err
	}
	if len(c.Collectors) == 0 {
		fmt.Fprintln(w, "no collector is enabled") //nolint:errcheck // as above
	}
	for _, s := range c.Collectors {
		c.writeCollector(w, s)
	}
	if len(c.Devices) == 0 {
		return nil // without devices there are no fields to report
	}
	return c.writeAbsent(w)
}

// writeCollector prints the number of fields of its devices, by kind.
func (c *checked) writeCollector(w io.Writer, s collectorRow) {
	type kind struct {
		name                  string
		n, least, most, asked int
	}
	var kinds []kind
	for _, d := range c.Devices {
		if d.Collector != s.Name {
			continue
		}
		i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == d.Kind })
		if i < 0 {
			i, kinds = len(kinds), append(kinds, kind{name: d.Kind, least: d.Supplied})
		}
		k := &kinds[i]
		k.n, k.least, k.most, k.asked = k.n+1, min(k.least, d.Supplied), max(k.most, d.Supplied), max(k.asked, d.Asked)
	}
	for _, k := range kinds {
		supplied := strconv.Itoa(k.most)
		if k.least < k.most {
			supplied = fmt.Sprintf("%d to %d", k.least, k.most)
		}
		fmt.Fprintf(w, "%s: supplies %s of %s for %s of kind %s\n", s.Name, supplied, config.Counted(k.asked, "field"), config.Counted(k.n, "device"), k.name) //nolint:errcheck // as above
	}
	if added := c.Added[s.Name]; len(added) > 0 {
		fmt.Fprintf(w, "%s: reads %s in addition for health (--health=off: none): %s\n", s.Name, config.Counted(len(added), "field"), strings.Join(added, ", ")) //nolint:errcheck // as above
	}
	if added := c.Named[s.Name]; len(added) > 0 {
		fmt.Fprintf(w, "%s: reads %s in addition for --field-names: %s\n", s.Name, config.Counted(len(added), "field"), strings.Join(added, ", ")) //nolint:errcheck // as above
	}
	if !s.Up {
		fmt.Fprintf(w, "%s is not in use: %s\n", s.Name, s.Reason) //nolint:errcheck // as above
	}
}

// writeAbsent prints a line for each field and reason, with the devices.
func (c *checked) writeAbsent(w io.Writer) error {
	type line struct {
		absentRow
		kind string
	}
	var order []line
	devices, all := map[line][]string{}, map[string]int{}
	for i := range c.Devices {
		d := &c.Devices[i]
		all[d.Kind]++
		for _, f := range d.Absent {
			l := line{f, d.Kind}
			if devices[l] == nil {
				order = append(order, l)
			}
			devices[l] = append(devices[l], d.name())
		}
	}
	slices.SortStableFunc(order, func(a, b line) int { return cmp.Compare(a.Field, b.Field) })
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	if len(order)+len(c.Nowhere) > 0 {
		fmt.Fprintln(t, "\nWITHOUT VALUE\tREASON\tDEVICES\tDETAIL")
	}
	for _, l := range order {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", l.Field, l.Reason, some(devices[l], all[l.kind], l.kind), l.Detail)
	}
	for _, f := range c.Nowhere {
		fmt.Fprintf(t, "%s\t%s\t-\t%s\n", f.Field, f.Reason, f.Detail)
	}
	return t.Flush()
}

// name returns a device's name for people.
func (d *checkedRow) name() string {
	if d.Kind == field.GPU.String() && d.GPU != "" {
		return d.GPU
	}
	return d.ID
}

// maxNamed is the number of devices that a line names.
const maxNamed = 8

// some names the given devices of a node with n devices.
func some(names []string, n int, kind string) string {
	switch {
	case len(names) == n:
		return "every " + kind
	case len(names) > maxNamed:
		return fmt.Sprintf("%s %s and %d more", kind, strings.Join(names[:maxNamed], " "), len(names)-maxNamed)
	}
	return kind + " " + strings.Join(names, " ")
}
