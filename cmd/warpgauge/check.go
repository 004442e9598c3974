package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
)

func checkCommand(a *app) *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "Check a counters CSV, and what this machine can supply of it",
		ArgsUsage: "[FILE]",
		Description: "Lists all problems of FILE, else of the file that the exporter would use, with their\n" +
			"places, then opens every enabled collector and says what it supplies. Ends with code 1\n" +
			"if the file has errors.",
		Flags: []cli.Flag{timeoutFlag()},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Len() > 1 {
				return fmt.Errorf("check takes one file, not %d", cmd.Args().Len())
			}
			return check(ctx, a, cmd.Args().First(), cmd.Duration("timeout"))
		},
	}
}

func check(ctx context.Context, a *app, path string, timeout time.Duration) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	csv := newCounters(a, cfg, path)
	in, err := csv.read(ctx)
	if err != nil {
		return err
	}
	list, problems, err := csv.parse(in)
	errs := 0
	for i := range problems {
		if problems[i].Severity == field.Error {
			errs++
		}
		a.printf("%s\n", problems[i].Error())
	}
	a.printf("%s: %s, %s, %s\n", in.Name, count(len(list.Fields), "field"), count(errs, "error"), count(len(problems)-errs, "warning"))
	if err != nil {
		if errs == 0 { // nothing above says what is wrong
			return fmt.Errorf("parse counters file %q: %w", in.Name, err)
		}
		return errReported
	}
	return checkSupply(ctx, a, cfg, list, timeout)
}

// checkSupply says for each enabled collector what it supplies of the list.
func checkSupply(ctx context.Context, a *app, cfg *config.Config, list field.List, timeout time.Duration) error {
	all, err := collectors(cfg, a.quietLogger(cfg))
	if err != nil {
		return err
	}
	if len(all) == 0 {
		a.printf("no collector is enabled\n")
	}
	for _, v := range all {
		c := v.open()
		s, err := openForSupply(ctx, c, list, timeout)
		if err != nil {
			a.printf("%s: supplies nothing: %v\n", c.Name(), err)
			continue
		}
		missing := s.missing(list)
		a.printf("%s: supplies %d of %s for %s\n", c.Name(), len(list.Fields)-len(missing), count(len(list.Fields), "field"), count(s.devices, "device"))
		if len(missing) > 0 {
			a.printf("%s: does not supply %s\n", c.Name(), strings.Join(missing, ", "))
		}
	}
	return nil
}

// supply is what a collector offers of a list.
type supply struct {
	devices  int
	readings map[field.ID]bool
	labels   map[string]bool
}

// openForSupply opens c and looks at its columns. An Open that does not return
// is abandoned after the timeout; it ends with the process.
func openForSupply(ctx context.Context, c collector.Collector, list field.List, timeout time.Duration) (supply, error) {
	type result struct {
		s   supply
		err error
	}
	octx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	done := make(chan result, 1)
	go func() {
		sources, err := c.Open(octx, list)
		s := newSupply(sources)
		if cerr := c.Close(); err == nil {
			err = cerr
		}
		done <- result{s, err}
	}()
	select {
	case r := <-done:
		return r.s, r.err
	case <-octx.Done():
	}
	select { // both may have happened
	case r := <-done:
		return r.s, r.err
	default:
		return supply{}, fmt.Errorf("opening it took longer than %v", timeout)
	}
}

func newSupply(sources []collector.Source) supply {
	s := supply{readings: map[field.ID]bool{}, labels: map[string]bool{}}
	for _, src := range sources {
		devices := src.Devices()
		s.devices += len(devices)
		for _, c := range src.Columns() {
			s.readings[c.Field] = true
		}
		for i := range devices {
			for _, l := range devices[i].Facts {
				s.labels[l.Name] = true
			}
		}
	}
	return s
}

// missing names the fields of the list that the collector does not supply.
func (s supply) missing(list field.List) (names []string) {
	for i := range list.Fields {
		f := &list.Fields[i]
		d := f.Desc
		if in, ok := field.Input(d); ok {
			d = in
		}
		if f.Type == field.Label && s.labels[f.Name] || f.Type != field.Label && s.readings[d.ID] {
			continue
		}
		names = append(names, f.Name)
	}
	return slices.Compact(names)
}
