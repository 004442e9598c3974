package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"warpgauge/pkg/exporter"

	"github.com/urfave/cli/v3"
	"go.uber.org/zap"

	"warpgauge/cmd/warpctl/doctor"
	"warpgauge/cmd/warpctl/top"
	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/cmdline"
	"warpgauge/pkg/config"
	"warpgauge/pkg/file"
)

func doctorCommand(a *exporter.Program) *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "Say what is wrong with the exporter and the machine below it, and what to do",
		Description: "Asks the exporter that runs on this machine, or the one at --url, and examines drivers, device\n" +
			"nodes, libraries and servers here. If no exporter answers it samples the devices itself. It\n" +
			"takes the exporter's flags and variables, and says what it could not read. Ends with code 1 if\n" +
			"something is wrong. --bundle writes what a support case needs, with names and secrets replaced.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "bundle", Usage: "Support bundle to write: FILE.tar.gz; - is standard output, in place of the findings."},
			&cli.BoolFlag{Name: "no-redact", Usage: "Leave names of pods, jobs, users and hosts, addresses and secrets in the bundle."},
			&cli.BoolFlag{Name: "recordings", Usage: "Add the newest recordings of the flight recorder. They cannot be redacted: needs --no-redact."},
			cmdline.OutputFlag(), timeoutFlag(),
		}, urlFlags()...),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := cmp.Or(cmdline.NoArguments(cmd), cmdline.CheckOutput(cmd.String("output"))); err != nil {
				return err
			}
			if cmd.Bool("recordings") && (!cmd.Bool("no-redact") || cmd.String("bundle") == "") {
				return errors.New("--recordings needs --bundle, and --no-redact: recordings cannot be redacted")
			}
			return examine(ctx, a, cmd)
		},
	}
}

func examine(ctx context.Context, a *exporter.Program, cmd *cli.Command) error {
	cfg, err := a.Config()
	if err != nil {
		return err
	}
	o := doctor.Options{
		Version: a.Build.Version, Settings: doctorSettings(a, cfg), Environ: a.Environ, Limit: cmd.Duration("timeout"),
		Sample: func(ctx context.Context, f func(doctor.Exporter) error) error {
			return sampled(ctx, a, cfg, cmd.Duration("timeout"), zap.NewNop(), func(c *apiv1.Client, _ string) error { return f(c) })
		},
	}
	var c *apiv1.Client
	address := cmd.String("url")
	if address == "" && readsHere(a, cfg) == "" {
		address = localURL(cfg.Web.Address)
	}
	if address != "" && address != noURL {
		if c, err = clientOf(ctx, a, cmd, address); err != nil {
			return err
		}
		o.Exporter = c
	}
	if cmd.String("url") != "" && address != noURL {
		o.Sample = nil // another machine's exporter says nothing of this one's devices
	}
	r := doctor.Run(ctx, o)
	if cmd.String("bundle") != "-" {
		if err := cmdline.WriteOutput(a.Out, cmd.String("output"), cmdline.Output{Table: r.Table, JSON: r, CSV: r.Rows()}); err != nil {
			return err
		}
	}
	b := doctor.BundleOptions{NoRedact: cmd.Bool("no-redact")}
	if cmd.Bool("recordings") && c != nil {
		b.Recordings = c
	}
	if err := writeBundle(ctx, a, cmd.String("bundle"), r, b); err != nil {
		return fmt.Errorf("write the bundle: %w", err)
	}
	if r.Wrong() {
		return cmdline.ErrReported
	}
	return nil
}

// writeBundle writes a support bundle, if one is asked for.
func writeBundle(ctx context.Context, a *exporter.Program, path string, r *doctor.Result, o doctor.BundleOptions) error {
	switch {
	case path == "":
		return nil
	case path == "-" && top.Terminal(a.Out):
		return errors.New("standard output is a terminal: redirect it, or name a file")
	case path == "-":
		return r.Bundle(ctx, a.Out, o)
	}
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }() // what was written in it is whole by now
	err = file.WriteWhole(dir, filepath.Base(path), func(w io.Writer) error { return r.Bundle(ctx, w, o) })
	if err == nil {
		cmdline.Notice(a.Log, "warpgauge", "wrote %s; look through it before you send it", path)
	}
	return err
}

// doctorSettings are the settings of the exporter that doctor checks.
func doctorSettings(a *exporter.Program, cfg *config.Config) doctor.Settings {
	s := doctor.Settings{Flags: a.Flags.Arguments(), RuntimeSocket: cfg.Containers.Socket, JobDirectory: cfg.HPCJobDir, DriverRoots: cfg.NVMLSource.DriverRoots}
	if cfg.Kubernetes.Enabled {
		s.KubeletSocket = cfg.Kubernetes.Socket
	}
	if cfg.RemoteHostEngine() && cfg.DCGM != config.Off {
		s.HostEngine = cfg.HostEngine.Address
	}
	return s
}
