package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"warpgauge/extensions/amd"
	"warpgauge/extensions/health"
	"warpgauge/pkg/cmdline"
	"warpgauge/pkg/config"
	"warpgauge/pkg/exporter"
)

// run is the whole program but for its exit. args begin with the program's name;
// environ is the environment, as os.Environ returns it; defaults are the counters CSVs that are tried if the
// user names none.
func run(ctx context.Context, args []string, s streams, environ []string, defaults ...string) int {
	a := &app{streams: s, log: newBacklog(s.err), environ: environ, defaults: defaults, build: cmdline.ReadBuild(version)}
	a.addFlags()
	defer a.log.flush()
	root := a.root()
	if len(args) > 1 && slices.Contains(moved, args[1]) {
		return cmdline.ExitCode(a.log, root.Name, &cmdline.ExitError{Code: 2, Err: fmt.Errorf("%s is a command of warpctl now: warpctl %[1]s --help", args[1])})
	}
	return cmdline.ExitCode(a.log, root.Name, root.Run(ctx, relax(a, args, root.Flags)))
}

// version is set by the linker: -ldflags "-X main.version=v1.2.3".
var version string

// moved are former commands of warpgauge.
var moved = []string{"top", "doctor", "compare", "replay"}

// app is what the subcommands share.
type app struct {
	streams
	log        *backlog // in front of standard error
	environ    []string
	defaults   []string // counters CSVs
	flags      *config.Set
	extensions []exporter.Extension
	unknown    []string // flags that are left out
	build      cmdline.Build
}

// addFlags makes the flag table.
func (a *app) addFlags() {
	a.flags = config.NewSet(a.lookup)
	a.extensions = []exporter.Extension{&amd.Extension{}}
	for _, e := range a.extensions {
		e.Flags(a.flags)
	}
}

// lookup reads the environment.
func (a *app) lookup(name string) (string, bool) {
	for _, v := range slices.Backward(a.environ) {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

func (a *app) root() *cli.Command {
	notice := ""
	if a.build.Pure {
		notice = ", without cgo: reads no NVIDIA GPU"
	}
	root := &cli.Command{
		Name:      "warpgauge",
		Usage:     "GPU metrics for Prometheus",
		Version:   a.build.Version,
		Flags:     a.flags.CLI(),
		Action:    a.serveAction,
		Writer:    a.out,
		ErrWriter: a.log,
		Commands: []*cli.Command{
			checkCommand(a), fieldsCommand(a), devicesCommand(a), onceCommand(a), pingCommand(a), healthCommand(a),
			a.build.VersionCommand(a.out, notice), manCommand(a), childCommand(a),
		},
	}
	root.CustomRootCommandHelpTemplate = rootHelp(root, a.flags)
	cmdline.Prepare(root, "\nAll flags of warpgauge --help work as well.\n")
	return root
}

// serveAction runs when no subcommand is named.
func (a *app) serveAction(ctx context.Context, cmd *cli.Command) error {
	if word := cmd.Args().First(); word != "" {
		return cmdline.UnknownCommand(cmd, word)
	}
	return a.serve(ctx)
}

// config returns the validated configuration.
func (a *app) config() (*config.Config, error) {
	cfg, err := a.flags.Config()
	if err == nil {
		_, err = health.Select(cfg.Health.Rules)
	}
	if err != nil {
		return nil, &configError{err}
	}
	cfg.DefaultFiles = a.defaults
	return cfg, nil
}

// configError lists what is wrong with flags and variables, one per line.
type configError struct{ err error }

func (e *configError) Error() string {
	text := e.err.Error()
	if !strings.Contains(text, "\n") {
		return text
	}
	return "configuration:\n  " + strings.ReplaceAll(text, "\n", "\n  ")
}

func (e *configError) Unwrap() error { return e.err }

// quietLogger is the logger of commands whose output a person reads: errors
// only, unless a level was asked for.
func (a *app) quietLogger(cfg *config.Config) *zap.Logger {
	quiet := *cfg
	if cfg.Source("log-level") == config.FromDefault {
		quiet.Log.Level = zapcore.ErrorLevel
	}
	return newLogger(&quiet, a.log)
}
