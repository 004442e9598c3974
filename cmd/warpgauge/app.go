package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"warpgauge/extensions/amd"
	"warpgauge/extensions/health"
	"warpgauge/pkg/config"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/field"
)

// errReported ends the process with code 1 without another message.
var errReported = errors.New("reported already")

// run is the whole program but for its exit. args begin with the program's name;
// environ is the environment, as os.Environ returns it; defaults are the counters CSVs that are tried if the
// user names none.
func run(ctx context.Context, args []string, s streams, environ []string, defaults ...string) int {
	a := &app{streams: s, log: newBacklog(s.err), environ: environ, defaults: defaults, build: readBuild()}
	a.addFlags()
	defer a.log.flush()
	root := a.root()
	err := root.Run(ctx, relax(a, args, root.Flags))
	if err == nil {
		return 0
	}
	if !errors.Is(err, errReported) {
		fmt.Fprintf(a.log, "warpgauge: %v\n", err) //nolint:errcheck // there is none
	}
	var exit *exitError
	if errors.As(err, &exit) {
		return exit.code
	}
	return 1
}

// exitError ends the process with another code than 1.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// app is what the subcommands share.
type app struct {
	streams
	log        *backlog // in front of standard error
	environ    []string
	defaults   []string // counters CSVs
	flags      *config.Set
	extensions []exporter.Extension
	unknown    []string // flags that are left out
	build      build
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
	root := &cli.Command{
		Name:                  "warpgauge",
		Usage:                 "GPU metrics for Prometheus",
		Version:               a.build.version,
		Flags:                 a.flags.CLI(),
		Action:                a.serveAction,
		Writer:                a.out,
		ErrWriter:             a.log,
		ExitErrHandler:        func(context.Context, *cli.Command, error) {}, // run decides on the exit code
		OnUsageError:          usageError,
		EnableShellCompletion: true,
		Commands: []*cli.Command{
			checkCommand(a), fieldsCommand(a), devicesCommand(a), onceCommand(a), pingCommand(a), compareCommand(a), topCommand(a), doctorCommand(a), healthCommand(a), replayCommand(a), exportCommand(a),
			versionCommand(a), manCommand(a), childCommand(a),
		},
	}
	root.CustomRootCommandHelpTemplate = rootHelp(root, a.flags)
	for _, c := range root.Commands {
		if c.OnUsageError == nil {
			c.OnUsageError = usageError
		}
		c.HideHelpCommand = true
		c.CustomHelpTemplate = commandHelp(c)
	}
	return root
}

// serveAction runs when no subcommand is named.
func (a *app) serveAction(ctx context.Context, cmd *cli.Command) error {
	if word := cmd.Args().First(); word != "" {
		return unknownWord(cmd, word)
	}
	return a.serve(ctx)
}

// unknownWord explains an argument that is no subcommand. A value that was
// meant for the flag before it is the usual reason.
func unknownWord(cmd *cli.Command, word string) error {
	if slices.Contains([]string{"true", "false", "auto"}, strings.ToLower(word)) {
		return fmt.Errorf("unexpected argument %q: write --flag=%s, with an equals sign", word, word)
	}
	var names []string
	for _, c := range cmd.Commands {
		names = append(names, c.Name)
	}
	return fmt.Errorf("unknown command %q%s; see warpgauge --help", word, didYouMean(word, names))
}

// didYouMean names the candidate that is nearest to word, if one is near.
func didYouMean(word string, candidates []string) string {
	if best, ok := field.Nearest(word, candidates); ok && word != "" {
		return fmt.Sprintf(" (did you mean %s?)", best)
	}
	return ""
}

// usageError keeps the library from printing the whole help after a slip.
func usageError(_ context.Context, cmd *cli.Command, err error, _ bool) error {
	if m := badValue.FindStringSubmatch(err.Error()); m != nil {
		return badFlag(cmd, m[2], m[1], m[3])
	}
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return err
	}
	var names []string
	for _, f := range slices.Concat(cmd.Flags, cmd.Root().Flags) {
		names = append(names, "--"+f.Names()[0])
	}
	name = "--" + strings.TrimLeft(name, "-")
	command := ""
	if cmd != cmd.Root() {
		command = " " + cmd.Name
	}
	return fmt.Errorf("unknown flag %s%s; see warpgauge%s --help", name, didYouMean(name, names), command)
}

// badValue is what the library says of a value: the value, the flag, and the error.
var badValue = regexp.MustCompile(`(?s)^invalid value (".*?") for flag -+([^:]+): (.*)$`)

// badFlag says what is wrong with a value. Our flags say that themselves.
func badFlag(cmd *cli.Command, name, value, why string) error {
	for _, f := range slices.Concat(cmd.Flags, cmd.Root().Flags) {
		if !slices.Contains(f.Names(), name) {
			continue
		}
		switch f.(type) {
		case *config.Flag:
			return errors.New(why)
		case *cli.DurationFlag:
			if !strings.HasPrefix(why, "write ") { // which a Validator says
				why = "write a duration with its unit, such as 10s"
			}
		case *cli.IntFlag:
			why = "write a whole number"
		case *cli.FloatFlag:
			why = "write a number"
		case *cli.BoolFlag:
			why = "write true or false"
		}
		break
	}
	return fmt.Errorf("%s is %s: %s", config.Dashed(name), value, why)
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
