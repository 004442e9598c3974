package main

import (
	"context"
	"io"
	"testing"

	"warpgauge/pkg/exporter"

	"github.com/urfave/cli/v3"

	"warpgauge/pkg/config"
)

// programOf returns the program of a command line, and its configuration.
func programOf(ctx context.Context, environ []string, args ...string) (*exporter.Program, *config.Config, error) {
	a := newProgram(exporter.Streams{Out: io.Discard, Err: io.Discard}, environ)
	cmd := &cli.Command{Flags: a.Flags.CLI(), Writer: io.Discard, ErrWriter: io.Discard, Action: func(context.Context, *cli.Command) error { return nil }}
	if err := cmd.Run(ctx, append([]string{"warpgauge"}, args...)); err != nil {
		return nil, nil, err
	}
	cfg, err := a.Config()
	return a, cfg, err
}

// wanted is programOf for a test.
func wanted(t *testing.T, args ...string) (*exporter.Program, *config.Config) {
	t.Helper()
	a, cfg, err := programOf(t.Context(), nil, args...)
	must(t, err)
	return a, cfg
}
