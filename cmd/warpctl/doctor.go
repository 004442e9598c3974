package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v3"

	"warpgauge/cmd/warpctl/doctor"
	"warpgauge/cmd/warpctl/top"
	"warpgauge/pkg/config"
	"warpgauge/pkg/file"
)

func doctorCommand(a *app) *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "Find problems of the exporter and the machine below it, with remedies",
		Description: "Asks the exporter that runs on this machine, or the one at --url, and examines drivers, device\n" +
			"nodes and libraries here, on Linux only. It lists what it could not read. Ends with code 1 if\n" +
			"it finds a problem.\n" +
			"--bundle writes an archive for a support case, with names and secrets replaced.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "url", Value: a.local, Usage: "Exporter to ask: http://HOST:PORT or https://USER:PASSWORD@HOST:PORT."},
			&cli.StringFlag{Name: "bundle", Usage: "Support bundle to write: FILE.tar.gz; - is standard output, in place of the findings."},
			&cli.BoolFlag{Name: "no-redact", Usage: "Leave names of pods, jobs, users and hosts, addresses and secrets in the bundle."},
			config.OutputFlag(), config.TimeoutFlag(10*time.Second, "Longest time to wait for the exporter."),
		}, config.TrustFlags()...),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := config.NoArguments(cmd); err != nil {
				return err
			}
			return a.examine(ctx, cmd)
		},
	}
}

func (a *app) examine(ctx context.Context, cmd *cli.Command) error {
	c, err := a.client(ctx, cmd, cmd.String("url"))
	if err != nil {
		return err
	}
	r := doctor.Run(ctx, doctor.Options{Version: a.build.Version, Environ: a.environ, Exporter: c, Limit: cmd.Duration("timeout")})
	if cmd.String("bundle") != "-" {
		if err := config.WriteOutput(a.out, cmd.String("output"), r, r.Table); err != nil {
			return err
		}
	}
	if err := a.writeBundle(cmd.String("bundle"), r, !cmd.Bool("no-redact")); err != nil {
		return fmt.Errorf("write the bundle: %w", err)
	}
	if r.Wrong() {
		return config.ErrReported
	}
	return nil
}

// writeBundle writes a support bundle on request.
func (a *app) writeBundle(path string, r *doctor.Result, redacted bool) error {
	switch {
	case path == "":
		return nil
	case path == "-" && top.Terminal(a.out):
		return errors.New("standard output is a terminal: redirect it, or name a file")
	case path == "-":
		return r.Bundle(a.out, redacted)
	}
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }() // the files in it were closed before
	err = file.WriteWhole(dir, filepath.Base(path), func(w io.Writer) error { return r.Bundle(w, redacted) })
	if err == nil {
		config.WriteNotice(a.err, "warpctl", "wrote %s; look through it before you send it", path)
	}
	return err
}
