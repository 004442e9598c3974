package config

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v3"
)

// Build is the version and revision of a binary.
type Build struct {
	Version, Revision string
	Pure              bool // without cgo
}

// ReadBuild returns version, which the linker sets, or else the version that the go command recorded.
func ReadBuild(version string) Build {
	b := Build{Version: version}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	if b.Version == "" && info.Main.Version != "(devel)" {
		b.Version = info.Main.Version
	}
	modified := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			modified = s.Value == "true"
		case "CGO_ENABLED":
			b.Pure = s.Value == "0"
		}
	}
	if modified && b.Revision != "" {
		b.Revision += "-dirty"
	}
	b.Version, b.Revision = cmp.Or(b.Version, "unknown"), cmp.Or(b.Revision, "unknown")
	return b
}

// String returns version and revision.
func (b Build) String() string { return b.Version + " " + b.Revision }

// VersionCommand returns the command that prints version and revision to w. notice adds a description of the build for
// people; "" adds nothing.
func (b Build) VersionCommand(w io.Writer, notice string) *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "Print version and revision",
		Flags: []cli.Flag{OutputFlag()},
		Action: func(_ context.Context, cmd *cli.Command) error {
			if err := NoArguments(cmd); err != nil {
				return err
			}
			platform, cgo := runtime.GOOS+"/"+runtime.GOARCH, fmt.Sprint(!b.Pure)
			about := map[string]string{"version": b.Version, "revision": b.Revision, "go": runtime.Version(), "platform": platform, "cgo": cgo}
			return WriteOutput(w, cmd.String("output"), about, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s %s (revision %s, %s, %s%s)\n", cmd.Root().Name, b.Version, b.Revision, runtime.Version(), platform, notice)
				return err
			})
		},
	}
}
