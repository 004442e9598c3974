package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"warpgauge/pkg/exporter"

	"github.com/urfave/cli/v3"
	"go.uber.org/zap"

	"warpgauge/cmd/warpctl/top"
	health "warpgauge/extensions/health/extension"
	"warpgauge/extensions/live"
	"warpgauge/extensions/live/api"
	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/cmdline"
	"warpgauge/pkg/config"
	"warpgauge/pkg/file"
	"warpgauge/pkg/session"
)

const (
	maxNodes       = 1000
	minTopInterval = 250 * time.Millisecond
)

func topCommand(a *exporter.Program) *cli.Command {
	trust := cmdline.TrustFlags() // in place of one --url there are any number
	return &cli.Command{
		Name:  "top",
		Usage: "Show what this node, or many, are doing, in the terminal",
		Description: "Asks the exporter that runs on this machine, or those at --url and in --urls-file, once a\n" +
			"second. If none runs here, it samples the devices itself. ? explains the keys.\n" +
			"With --once, or if the output is no terminal, it writes a table once and ends with code 1\n" +
			"if a node does not answer or there is no device.",
		Flags: append([]cli.Flag{
			&cli.StringSliceFlag{Name: "url", Usage: "Exporter to ask: http://HOST:PORT or https://USER:PASSWORD@HOST:PORT; any number of times; none reads the devices here. " +
				"Default: the one at --address of this machine; none if the command line has flags that say what to read."},
			&cli.StringFlag{Name: "urls-file", Usage: "File with a URL per line; # begins a comment."},
			&cli.DurationFlag{Name: "interval", Value: time.Second, Usage: "How often to ask each exporter."},
			&cli.BoolFlag{Name: "once", Usage: "Write a table once and end."},
			cmdline.OutputFlag(), timeoutFlag(),
		}, trust...),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := cmp.Or(cmdline.NoArguments(cmd), cmdline.CheckOutput(cmd.String("output"))); err != nil {
				return err
			}
			if i := cmd.Duration("interval"); i < minTopInterval {
				return fmt.Errorf("--interval is %v: at least %v", i, minTopInterval)
			}
			return showTop(ctx, a, cmd)
		},
	}
}

func showTop(ctx context.Context, a *exporter.Program, cmd *cli.Command) error {
	cfg, err := a.Config()
	if err != nil {
		return err
	}
	urls, err := topURLs(ctx, cmd)
	if err != nil {
		return err
	}
	if len(urls) == 0 {
		return topHere(ctx, a, cmd, cfg)
	}
	if len(urls) == 1 && urls[0] == noURL {
		return topSampling(ctx, a, cmd, cfg, "sampling the devices itself")
	}
	var targets []top.Target
	for _, u := range urls {
		c, err := clientOf(ctx, a, cmd, u)
		if err != nil {
			return err
		}
		targets = append(targets, top.Target{Name: c.URL(), Node: c})
	}
	return show(ctx, a, cmd, targets, "")
}

// topURLs are the exporters that a user names, each once.
func topURLs(ctx context.Context, cmd *cli.Command) ([]string, error) {
	urls := cmd.StringSlice("url")
	if path := cmd.String("urls-file"); path != "" {
		text, err := file.NewReader(1<<20).Read(ctx, path)
		if err != nil {
			return nil, fmt.Errorf("--urls-file: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			line, _, _ = strings.Cut(line, "#")
			if line = strings.TrimSpace(line); line != "" {
				urls = append(urls, line)
			}
		}
		if len(urls) == 0 {
			return nil, fmt.Errorf("--urls-file: %q has no URL", path)
		}
	}
	seen := map[string]bool{}
	var out []string
	for _, u := range urls {
		if !seen[u] {
			seen[u], out = true, append(out, u)
		}
	}
	if len(out) > maxNodes {
		return nil, fmt.Errorf("%d exporters: at most %d", len(out), maxNodes)
	}
	return out, nil
}

// topHere shows this node: what its exporter says, or what is sampled here.
func topHere(ctx context.Context, a *exporter.Program, cmd *cli.Command, cfg *config.Config) error {
	var c *apiv1.Client
	asked, err := asksExporter(ctx, a, cmd, cfg, func(ctx context.Context, client *apiv1.Client) error {
		c = client
		_, err := c.Devices(ctx)
		return err
	})
	switch {
	case err != nil:
		return err
	case asked:
		return show(ctx, a, cmd, []top.Target{{Name: c.URL(), Node: c}}, "")
	}
	return topSampling(ctx, a, cmd, cfg, "no exporter is asked: sampling the devices itself")
}

// topSampling shows what is sampled here.
func topSampling(ctx context.Context, a *exporter.Program, cmd *cli.Command, cfg *config.Config, notice string) error {
	log := a.QuietLogger(cfg)
	if !once(cmd) && top.Terminal(a.Out) { // which is no place for lines of a log
		log, cfg.HostEngine.Log = zap.NewNop(), false
	}
	return sampled(ctx, a, cfg, cmd.Duration("timeout"), log, func(c *apiv1.Client, hostname string) error {
		return show(ctx, a, cmd, []top.Target{{Name: hostname, Node: c}}, notice)
	})
}

func once(cmd *cli.Command) bool { return cmd.Bool("once") || cmd.IsSet("output") }

// show shows the nodes on a terminal, or writes once what they say.
func show(ctx context.Context, a *exporter.Program, cmd *cli.Command, targets []top.Target, notice string) error {
	if !once(cmd) && top.Terminal(a.Out) {
		return top.Run(ctx, targets, a.Out, top.Options{Interval: cmd.Duration("interval"), Notice: notice, Environ: a.Environ})
	}
	r := top.Once(ctx, targets)
	if cmd.String("output") == "csv" { // which has lines of devices only
		for _, n := range r.Nodes {
			if n.Error != "" {
				cmdline.Notice(a.Log, "warpgauge", "%s", n.Error)
			}
		}
	}
	err := cmdline.WriteOutput(a.Out, cmd.String("output"), cmdline.Output{Table: r.Table, JSON: r, CSV: r.Rows()})
	if err == nil && (r.Silent() || len(r.Devices) == 0) {
		err = cmdline.ErrReported
	}
	return err
}

// sampled samples in this process as the exporter does, and calls f with a client of
// the API over that when each device has been sampled or says why not.
func sampled(ctx context.Context, a *exporter.Program, cfg *config.Config, timeout time.Duration, log *zap.Logger, f func(c *apiv1.Client, hostname string) error) error {
	shown := extension[*live.Extension](a)
	shown.Recorder.Directory, shown.Page = "", live.PageFull // recordings are the exporter's
	extension[*health.Extension](a).InMemory()
	parsed, err := a.NewFiles(cfg, "", nil).First(ctx, log)
	if err != nil {
		return err
	}
	all, err := a.WithProcesses(cfg, log, true)
	if err != nil {
		return err
	}
	p, err := a.NewPipeline(cfg, all, parsed.Fields, log)
	if err != nil {
		return err
	}
	p.ServeLists(parsed, nil)
	if err := p.Extend(); err != nil {
		return err
	}
	p.AddPages()
	var c *apiv1.Client
	for _, r := range p.Routes {
		if answers, ok := r.Handler.(*api.API); ok {
			c = api.NewLocalClient(answers)
		}
	}
	return exporter.SampleOnce(ctx, p.Engine, p.Owners, timeout, func(context.Context, []session.CollectorStatus) error {
		fctx, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		wg.Go(func() { _ = p.Rows.Run(fctx) }) // it ends with its context
		for _, s := range p.Extended {
			wg.Go(func() { _ = s.Run(fctx) }) // as above
		}
		err := f(c, p.Hostname)
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	})
}
