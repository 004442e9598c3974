package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"warpgauge/cmd/warpctl/top"
	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/config"
	"warpgauge/pkg/file"
)

const maxNodes, minTopInterval = 1000, 250 * time.Millisecond

func topCommand(a *app) *cli.Command {
	return &cli.Command{
		Name:  "top",
		Usage: "Show what this node, or many, are doing, in the terminal",
		Description: "Asks the exporter that runs on this machine, or those at --url and in --urls-file, once a\n" +
			"second. ? explains the keys.\n" +
			"With --once, or if the output is not a terminal, it writes a table once and ends with\n" +
			"code 1 if a node does not answer or has no device.",
		Flags: append(a.targetFlags(),
			&cli.DurationFlag{Name: "interval", Value: time.Second, Usage: "How often to ask each exporter."},
			&cli.BoolFlag{Name: "once", Usage: "Write a table once and end."},
		),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := config.NoArguments(cmd); err != nil {
				return err
			}
			if i := cmd.Duration("interval"); i < minTopInterval {
				return fmt.Errorf("--interval is %v: at least %v", i, minTopInterval)
			}
			return a.show(ctx, cmd)
		},
	}
}

// targetFlags returns the flags that targets reads, and --output.
func (a *app) targetFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringSliceFlag{Name: "url", Usage: "Exporter to ask: http://HOST:PORT or https://USER:PASSWORD@HOST:PORT; any number of times. Default: " + a.local + "."},
		&cli.StringFlag{Name: "urls-file", Usage: "File with a URL per line; # begins a comment."},
		config.OutputFlag(),
	}, config.TrustFlags()...)
}

// targets returns the exporters in --url and --urls-file, without duplicates. Without either it returns the exporter on
// this machine, which must answer.
func (a *app) targets(ctx context.Context, cmd *cli.Command) (out []*apiv1.Client, err error) {
	urls := cmd.StringSlice("url")
	if path := cmd.String("urls-file"); path != "" {
		text, err := file.NewReader(1<<20).Read(ctx, path)
		if err != nil {
			return nil, fmt.Errorf("--urls-file: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			line, _, _ = strings.Cut(line, "#")
			urls = append(urls, strings.Fields(line)...)
		}
		if len(urls) == 0 {
			return nil, fmt.Errorf("--urls-file: %q has no URL", path)
		}
	}
	named := len(urls) > 0
	if !named {
		urls = []string{a.local}
	}
	for i, u := range urls {
		if slices.Contains(urls[:i], u) {
			continue
		}
		c, err := a.client(ctx, cmd, u)
		if err != nil {
			return nil, err
		}
		if !named {
			if _, err := c.Devices(ctx); errors.Is(err, apiv1.ErrNoAnswer) {
				return nil, fmt.Errorf("%w; start warpgauge, name another exporter with --url, or read the devices of this machine without an exporter: warpgauge devices", err)
			}
		}
		out = append(out, c)
	}
	if len(out) > maxNodes {
		return nil, fmt.Errorf("%d exporters: at most %d", len(out), maxNodes)
	}
	return out, nil
}

// show runs the interactive view on a terminal; otherwise it writes one report.
func (a *app) show(ctx context.Context, cmd *cli.Command) error {
	clients, err := a.targets(ctx, cmd)
	if err != nil {
		return err
	}
	targets := make([]top.Target, len(clients))
	for i, c := range clients {
		targets[i] = top.Target{Name: c.URL(), Node: c}
	}
	if !cmd.Bool("once") && !cmd.IsSet("output") && top.Terminal(a.out) && !slices.Contains(a.environ, "TERM=dumb") {
		return top.Run(ctx, targets, a.out, cmd.Duration("interval"), a.environ)
	}
	r := top.Once(ctx, targets)
	err = config.WriteOutput(a.out, cmd.String("output"), r, r.Table)
	if err == nil && (r.Silent() || len(r.Devices) == 0) {
		err = config.ErrReported
	}
	return err
}
