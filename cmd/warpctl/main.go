// Command warpctl queries exporters: it shows nodes, diagnoses one, compares its page with another, and
// replays recordings. It samples nothing and links no vendor library. See docs/warpctl.md.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v3"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/config"
)

const defaultURL = "http://localhost:9400" // the exporter on this machine

// version is set by the linker: -ldflags "-X main.version=v1.2.3".
var version string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args, os.Stdout, os.Stderr, os.Environ(), defaultURL)
	stop()
	os.Exit(code)
}

// app has the parts that all commands share.
type app struct {
	out, err io.Writer
	environ  []string
	local    string // default exporter
	build    config.Build
}

// run runs the program and returns its exit code. args begin with the program's name.
func run(ctx context.Context, args []string, out, errs io.Writer, environ []string, local string) int {
	a := &app{out: out, err: errs, environ: environ, local: local, build: config.ReadBuild(version)}
	return config.ExitCode(errs, "warpctl", a.root().Run(ctx, args))
}

func (a *app) root() *cli.Command {
	root := &cli.Command{
		Name:      "warpctl",
		Usage:     "Ask warpgauge exporters",
		Version:   a.build.Version,
		Writer:    a.out,
		ErrWriter: a.err,
		Action: func(_ context.Context, cmd *cli.Command) error {
			if word := cmd.Args().First(); word != "" {
				return config.UnknownCommand(cmd, word)
			}
			return cli.ShowRootCommandHelp(cmd)
		},
		Commands: []*cli.Command{
			topCommand(a), jobCommand(a), doctorCommand(a), compareCommand(a), replayCommand(a),
			a.build.VersionCommand(a.out, ""),
			config.ManCommand(a.out, "warpctl", a.build.Version, manualTail),
		},
	}
	root.CustomRootCommandHelpTemplate = helpHead + config.CommandList(root)
	config.Prepare(root, "")
	return root
}

const helpHead = `warpctl asks warpgauge exporters, on this machine or others.

Usage:
  warpctl COMMAND [flags]           see below; warpctl COMMAND --help says more

Commands:
`

const manualTail = `.SH EXIT STATUS
0 when all is well. 1 when something is wrong or does not answer. What else a command says with its code is in its description.
.SH SEE ALSO
.BR warpgauge (1)
`

// client returns a client for an exporter's address, with the settings of config.TrustFlags.
func (a *app) client(ctx context.Context, cmd *cli.Command, address string) (*apiv1.Client, error) {
	trust, err := config.Trust(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return apiv1.NewClient(address, apiv1.ClientOptions{TLS: trust, UserAgent: "warpctl/" + a.build.Version})
}
