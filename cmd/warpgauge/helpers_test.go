package main

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/urfave/cli/v3"

	"warpgauge/etc"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/config"
	"warpgauge/pkg/exporter"
)

var (
	must     = testkit.Must
	tempFile = testkit.TempFile
)

type (
	environment = testkit.Environment
	outcome     = testkit.Outcome
)

// execute runs the program in this process.
func execute(t *testing.T, env environment, args ...string) outcome {
	t.Helper()
	var out, err bytes.Buffer
	code := run(t.Context(), append([]string{"warpgauge"}, args...), exporter.Streams{Out: &out, Err: &err}, env.List())
	return outcome{Code: code, Out: out.String(), Err: err.String()}
}

// newProgram returns the program with its tables, before flags are parsed.
func newProgram(s exporter.Streams, environ []string) *exporter.Program {
	a := exporter.NewProgram(s, environ, version, vendors, extensions()...)
	a.BuiltIn = etc.DefaultCounters()
	return a
}

// wanted returns the program and the configuration for a command line.
func wanted(t *testing.T, args ...string) (*exporter.Program, *config.Config) {
	t.Helper()
	a := newProgram(exporter.Streams{Out: io.Discard, Err: io.Discard}, nil)
	cmd := &cli.Command{Flags: a.Flags.CLI(), Action: func(context.Context, *cli.Command) error { return nil }}
	must(t, cmd.Run(t.Context(), append([]string{"warpgauge"}, args...)))
	cfg := testkit.Get(a.Config())(t)
	return a, cfg
}

// simulated returns the flags for a fully simulated node.
func simulated(more ...string) []string {
	return append([]string{"--enable-only=fake"}, more...)
}
