package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v3"

	"warpgauge/pkg/exposition"
	"warpgauge/pkg/session"
)

// maxSamples is the least number of rows that a ring holds: what is accumulated
// is read once, after the last sample.
const maxSamples = 16

func onceCommand(a *app) *cli.Command {
	return &cli.Command{
		Name:        "once",
		Usage:       "Sample every device and print the page",
		Description: "Ends with code 1 if there is no device.",
		Flags: []cli.Flag{
			timeoutFlag(),
			&cli.StringFlag{Name: "format", Value: "text", Usage: "text or openmetrics."},
			&cli.IntFlag{Name: "samples", Value: 1, Usage: "How often to sample; histograms and event counts need more than one."},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			format, err := pageFormat(cmd.String("format"))
			if err := cmp.Or(noArguments(cmd), err); err != nil {
				return err
			}
			samples := cmd.Int("samples")
			if samples < 1 || samples > maxSamples {
				return fmt.Errorf("--samples is %d: write a number from 1 to %d", samples, maxSamples)
			}
			return once(ctx, a, cmd.Duration("timeout"), format, samples)
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

func once(ctx context.Context, a *app, timeout time.Duration, format exposition.Format, samples int) error {
	cfg, err := a.config()
	if err != nil {
		return err
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
	return sampleOnce(ctx, p.engine, p.owners, timeout, func(ctx context.Context, all []session.CollectorStatus) error {
		for range samples - 1 {
			await(ctx, p.engine, sampledAfter(time.Now()))
		}
		p.addPages() // now that the own metrics know of the devices
		if _, err := a.out.Write(p.renderer.Page(format, false)); err != nil {
			return err
		}
		if !slices.ContainsFunc(all, func(c session.CollectorStatus) bool { return len(c.Devices) > 0 }) {
			return errors.New("no device found; warpgauge devices says why")
		}
		return nil
	})
}
