package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

	"warpgauge/etc"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/config"
	"warpgauge/pkg/exporter"
)

var must = testkit.Must

// environment holds a process's variables.
type environment map[string]string

func (e environment) lookup(name string) (string, bool) {
	v, ok := e[name]
	return v, ok
}

// list returns the environment in the format of os.Environ.
func (e environment) list() (out []string) {
	for name, value := range e {
		out = append(out, name+"="+value)
	}
	return out
}

// outcome is the result of a run.
type outcome struct {
	code     int
	out, err string
}

// execute runs the program in this process.
func execute(t *testing.T, env environment, args ...string) outcome {
	t.Helper()
	var out, err bytes.Buffer
	code := run(t.Context(), append([]string{"warpgauge"}, args...), exporter.Streams{Out: &out, Err: &err}, env.list())
	return outcome{code, out.String(), err.String()}
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
	cfg, err := a.Config()
	must(t, err)
	return a, cfg
}

// simulated returns the flags for a fully simulated node.
func simulated(more ...string) []string {
	return append([]string{"--enable-only=fake"}, more...)
}

func (o outcome) want(t *testing.T, code int, texts ...string) {
	t.Helper()
	if o.code != code {
		t.Errorf("exit code %d, want %d\noutput: %s\nerrors: %s", o.code, code, o.out, o.err)
	}
	for _, text := range texts {
		if !strings.Contains(o.out+o.err, text) {
			t.Errorf("output lacks %q\noutput: %s\nerrors: %s", text, o.out, o.err)
		}
	}
}

func tempFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	writeFile(t, path, content)
	return path
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(content), 0o600))
}
