package exporter

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"warpgauge/pkg/config"
)

// Run runs the whole program with a table of flags and extensions, and returns the exit code. args begins with the
// program's name.
func Run(ctx context.Context, a *Program, args []string) int {
	defer a.Log.Flush()
	root := RootCommand(a)
	return config.ExitCode(a.Log, root.Name, root.Run(ctx, relax(a, args, root.Flags)))
}

// RootCommand returns the program's root command with all others.
func RootCommand(a *Program) *cli.Command {
	notice := ""
	if a.Build.Pure {
		notice = ", without cgo: reads no NVIDIA GPU"
	}
	root := &cli.Command{
		Name:    "warpgauge",
		Usage:   "GPU metrics for Prometheus",
		Version: a.Build.Version,
		Flags:   a.Flags.CLI(),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if word := cmd.Args().First(); word != "" {
				return config.UnknownCommand(cmd, word)
			}
			return a.Serve(ctx)
		},
		Writer:    a.Out,
		ErrWriter: a.Log,
		Commands:  []*cli.Command{checkCommand(a), fieldsCommand(a)},
	}
	for _, e := range a.Extensions {
		if c, ok := e.(Commander); ok {
			root.Commands = append(root.Commands, c.Commands(a)...)
		}
	}
	root.Commands = append(root.Commands, pingCommand(a), a.Build.VersionCommand(a.Out, notice), config.ManCommand(a.Out, "warpgauge", a.Build.Version, manualTail), childCommand(a))
	root.CustomRootCommandHelpTemplate = helpHead + config.CommandList(root) + // printed unchanged, because it holds no template text
		"\nA flag beats its environment variable ($NAME), which beats the default.\n\n" + config.FlagHelp(a.Flags)
	config.Prepare(root, "\nAll flags of warpgauge --help work as well.\n")
	return root
}

// timeoutFlag is the --timeout of commands that read devices or ask an exporter.
func timeoutFlag() cli.Flag {
	return config.TimeoutFlag(10*time.Second, "Longest time to wait for libraries and devices.")
}

const helpHead = `warpgauge serves GPU metrics to Prometheus.

Usage:
  warpgauge [flags]                 serve http://HOST:9400/metrics
  warpgauge [flags] COMMAND         see below; warpgauge COMMAND --help says more

Commands:
`

// relax removes unknown flags in front of any command, if an extension allows that. It treats a word behind
// one as its value.
func relax(a *Program, args []string, known []cli.Flag) []string {
	if !a.Flags.UnknownAllowed() || len(args) == 0 {
		return args
	}
	out := args[:1:1]
	for i := 1; i < len(args); i++ {
		word := args[i]
		if !strings.HasPrefix(word, "-") || word == "-" || word == "--" {
			return append(out, args[i:]...)
		}
		name, _, whole := strings.Cut(strings.TrimLeft(word, "-"), "=")
		at := slices.IndexFunc(known, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
		takes := !whole && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") // the next word
		if at < 0 {
			a.Unknown = append(a.Unknown, word)
			if takes {
				i++
			}
			continue
		}
		out = append(out, word)
		if b, ok := known[at].(interface{ IsBoolFlag() bool }); takes && !(ok && b.IsBoolFlag()) {
			i++
			out = append(out, args[i])
		}
	}
	return out
}

const manualTail = `.SH EXIT STATUS
0 when all is well, also after a signal that ends it. 1 when something has to be put right, when it was ended at once by
a second signal, and when a command that looks for something has found nothing. What else a command says with its code is
in its description.
.SH SIGNALS
.TP
.B SIGHUP
Read the field list again.
.TP
.B SIGUSR1
Release the devices: close the libraries, for as long as \-\-release\-timeout says.
.TP
.B SIGUSR2
End that.
.TP
.BR SIGTERM ", " SIGINT ", " SIGQUIT
Stop. A second one ends it at once.
.SH FILES
.TP
.I /etc/warpgauge/*.csv
Field lists. default\-counters.csv is served if no other is named.
.TP
.I /etc/default/warpgauge
Flags and environment of the systemd unit of the packages.
.TP
.I /usr/share/doc/warpgauge
Documentation.
`
