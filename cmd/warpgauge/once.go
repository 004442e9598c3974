package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"warpgauge/pkg/api"
	"warpgauge/pkg/config"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// maxSamples is the least number of rows that a ring holds: what is accumulated
// is read once, after the last sample.
const maxSamples = 16

func onceCommand(a *app) *cli.Command {
	return &cli.Command{
		Name:  "once",
		Usage: "Print the page of the exporter here, or sample every device and print one",
		Description: "Asks the exporter that runs on this machine, or the one at --url. If none answers, it opens\n" +
			"every enabled collector, samples each device, again for what takes two samples, and makes\n" +
			"the page itself. Standard error says which it did, and which fields have no value.\n" +
			"Ends with code 1 if there is no device.",
		Flags: append([]cli.Flag{
			timeoutFlag(),
			&cli.StringFlag{Name: "format", Value: "text", Usage: "text or openmetrics."},
			&cli.IntFlag{Name: "samples", Value: 1, Usage: "How often to sample here, at least; histograms and event counts need more than one."},
		}, urlFlags()...),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			format, err := pageFormat(cmd.String("format"))
			if err := cmp.Or(noArguments(cmd), err); err != nil {
				return err
			}
			samples := cmd.Int("samples")
			if samples < 1 || samples > maxSamples {
				return fmt.Errorf("--samples is %d: write a number from 1 to %d", samples, maxSamples)
			}
			return a.once(ctx, cmd, format, samples)
		},
	}
}

func pageFormat(name string) (exposition.Format, error) {
	switch name {
	case "text":
		return exposition.Text, nil
	case "openmetrics":
		return exposition.OpenMetrics, nil
	}
	return 0, fmt.Errorf("--format is %q: write text or openmetrics", name)
}

var errNoDevice = errors.New("no device found; warpgauge devices says why")

func (a *app) once(ctx context.Context, cmd *cli.Command, format exposition.Format, samples int) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	if !cmd.IsSet("samples") {
		if asked, err := a.onceAsked(ctx, cmd, cfg, format); asked || err != nil {
			return err
		}
	}
	log := a.quietLogger(cfg)
	list, _, err := newCounters(a, cfg, "").first(ctx, log)
	if err != nil {
		return err
	}
	all, err := collectors(cfg, log)
	if err != nil {
		return err
	}
	p, err := newPipeline(a, cfg, all, list, log)
	if err != nil {
		return err
	}
	return sampleOnce(ctx, p.engine, p.owners, cmd.Duration("timeout"), func(ctx context.Context, all []session.CollectorStatus) error {
		for range samples - 1 {
			await(ctx, p.engine, sampledAfter(time.Now()))
		}
		for n := samples; n < enoughSamples && ctx.Err() == nil && len(blanks(p.engine.Board().Load())) > 0; n++ {
			await(ctx, p.engine, sampledAfter(time.Now()))
		}
		p.addPages() // now that the own metrics know of the devices
		if _, err := a.out.Write(p.renderer.Page(format, false)); err != nil {
			return err
		}
		if !slices.ContainsFunc(all, func(c session.CollectorStatus) bool { return len(c.Devices) > 0 }) {
			return errNoDevice
		}
		a.noteAbsent(list, p.engine.Board().Load())
		return nil
	})
}

// onceAsked prints the page of a running exporter, if one is to be asked and answers.
func (a *app) onceAsked(ctx context.Context, cmd *cli.Command, cfg *config.Config, format exposition.Format) (bool, error) {
	var page bytes.Buffer
	var found *api.Devices
	asked, err := a.asks(ctx, cmd, cfg, func(ctx context.Context, c *api.Client) (err error) {
		// Whatever listens at the usual port, and has pages: this is how to know that it is warpgauge.
		found, err = c.Devices(ctx)
		if err != nil && (cmd.String("url") == "" || !errors.Is(err, api.ErrNoAPI)) {
			return err
		}
		return c.Page(ctx, format.ContentType(), &page)
	})
	if !asked || err != nil {
		return asked, err
	}
	if _, err := a.out.Write(page.Bytes()); err != nil {
		return true, err
	}
	if found != nil && len(found.Devices) == 0 {
		return true, errNoDevice
	}
	return true, nil
}

// enoughSamples is after how many a value that takes two is there, if its device has
// one: the second may have come before something else was ready.
const enoughSamples = 3

// blanks are the readings that some device has a column of without a value.
func blanks(v *view.View) map[field.ID]bool {
	out := map[field.ID]bool{}
	var row ring.Row
	for _, s := range v.Sources {
		if !s.Ring.Latest(&row) {
			continue
		}
		for i, c := range s.Columns {
			if d, ok := field.ByID(c.Field); ok && !d.Event && c.Buffer == 0 && row.Stamps[c.Device] != 0 && math.IsNaN(row.Cells[i]) {
				out[c.Field] = true
			}
		}
	}
	return out
}

// noteAbsent names the fields of the list that have no series on the page, or not on every device that has them.
func (a *app) noteAbsent(list field.List, v *view.View) {
	blank, has := blanks(v), map[field.ID]bool{}
	facts := map[string]bool{}
	for _, s := range v.Sources {
		for _, c := range s.Columns {
			has[c.Field] = true
		}
		for i := range s.Devices {
			for _, l := range s.Devices[i].Facts {
				facts[l.Name] = true
			}
		}
	}
	var none, some []string
	for i := range list.Fields {
		f := &list.Fields[i]
		id := f.Desc.ID
		if in, ok := field.Input(f.Desc); ok {
			id = in.ID
		}
		switch {
		case f.Type == field.Label && facts[f.Name]:
		case f.Type == field.Label || !has[id]:
			none = append(none, f.Name)
		case blank[id]:
			some = append(some, f.Name)
		}
	}
	if len(none) > 0 {
		a.note("no device here supplies %s: warpgauge check says why", strings.Join(none, ", "))
	}
	if len(some) > 0 {
		a.note("without a value on some devices after %d samples: %s", enoughSamples, strings.Join(some, ", "))
	}
}
