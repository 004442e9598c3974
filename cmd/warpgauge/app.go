package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/urfave/cli/v3"

	"warpgauge/pkg/cmdline"
	"warpgauge/pkg/config"
	"warpgauge/pkg/exporter"
)

// run is the whole program, except that it returns the exit code. args begin with the program's name;
// environ is the environment, as os.Environ returns it; defaults are the counters CSVs that are tried if the
// user names none.
func run(ctx context.Context, args []string, s exporter.Streams, environ []string, defaults ...string) int {
	a := newProgram(s, environ, defaults...)
	defer a.Log.Flush()
	root := newRoot(a)
	if len(args) > 1 && slices.Contains(moved, args[1]) {
		return cmdline.ExitCode(a.Log, root.Name, &cmdline.ExitError{Code: 2, Err: fmt.Errorf("%s is a command of warpctl now: warpctl %[1]s --help", args[1])})
	}
	return cmdline.ExitCode(a.Log, root.Name, root.Run(ctx, relax(a, args, root.Flags)))
}

// newProgram returns the program with its tables, before any flag is parsed.
func newProgram(s exporter.Streams, environ []string, defaults ...string) *exporter.Program {
	a := &exporter.Program{
		Streams: s, Log: exporter.NewBacklog(s.Err), Environ: environ, Defaults: defaults, Build: cmdline.ReadBuild(version),
		Vendors: vendors, Extensions: extensions(),
	}
	a.Flags = config.NewSet(a.Lookup)
	for _, e := range a.Extensions {
		e.Flags(a.Flags)
	}
	return a
}

// version is set by the linker: -ldflags "-X main.version=v1.2.3".
var version string

// moved are former commands of warpgauge.
var moved = []string{"top", "doctor", "compare", "replay"}

func newRoot(a *exporter.Program) *cli.Command {
	notice := ""
	if a.Build.Pure {
		notice = ", without cgo: reads no NVIDIA GPU"
	}
	root := &cli.Command{
		Name:      "warpgauge",
		Usage:     "GPU metrics for Prometheus",
		Version:   a.Build.Version,
		Flags:     a.Flags.CLI(),
		Action:    func(ctx context.Context, cmd *cli.Command) error { return serveAction(ctx, a, cmd) },
		Writer:    a.Out,
		ErrWriter: a.Log,
		Commands: []*cli.Command{
			checkCommand(a), fieldsCommand(a), devicesCommand(a), onceCommand(a), pingCommand(a), healthCommand(a),
			a.Build.VersionCommand(a.Out, notice), manCommand(a), childCommand(a),
		},
	}
	root.CustomRootCommandHelpTemplate = rootHelp(root, a.Flags)
	cmdline.Prepare(root, "\nAll flags of warpgauge --help work as well.\n")
	return root
}

// serveAction runs when no subcommand is named.
func serveAction(ctx context.Context, a *exporter.Program, cmd *cli.Command) error {
	if word := cmd.Args().First(); word != "" {
		return cmdline.UnknownCommand(cmd, word)
	}
	return a.Serve(ctx)
}
