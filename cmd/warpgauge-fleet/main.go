// Command warpgauge-fleet brings field lists to many exporters over OpAMP, in stages, and takes them back
// when they do harm. See docs/fleet.md.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v3"
)

// version is set by the linker.
var version = "unknown" //nolint:gochecknoglobals // the linker can set nothing else

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "warpgauge-fleet:", err)
		os.Exit(1)
	}
}

// run runs the program and returns its error; main exits.
func run(ctx context.Context, args []string, out, errs io.Writer) error {
	root := &cli.Command{
		Name:           "warpgauge-fleet",
		Usage:          "field lists for many exporters, in stages",
		Version:        version,
		Writer:         out,
		ErrWriter:      errs,
		ExitErrHandler: func(context.Context, *cli.Command, error) {}, // main sets the exit code
		OnUsageError:   func(_ context.Context, _ *cli.Command, err error, _ bool) error { return err },
		Commands: []*cli.Command{
			serveCommand(errs), statusCommand(out),
			verbCommand(out, "rollout", "begin again with the directory's list, which was rejected"),
			verbCommand(out, "pause", "let a rollout change nothing, neither forward nor back"),
			verbCommand(out, "resume", "let a paused rollout continue"),
			verbCommand(out, "rollback", "return all agents of the cohort to the list before"),
		},
	}
	for _, c := range root.Commands {
		c.OnUsageError = root.OnUsageError
		c.HideHelpCommand = true
	}
	return root.Run(ctx, args)
}

// env returns the environment variable that sets a flag.
func env(name string) cli.ValueSourceChain { return cli.EnvVars("WARPGAUGE_FLEET_" + name) }
