package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v3"
)

// version is set by the linker: -ldflags "-X main.version=v1.2.3".
var version string

// build is what the binary was made from.
type build struct {
	version, revision string
	pure              bool // without cgo
}

// readBuild asks the linker's value first, then what the go command recorded.
func readBuild() build {
	b := build{version: version}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b.orUnknown()
	}
	if b.version == "" && info.Main.Version != "(devel)" {
		b.version = info.Main.Version
	}
	modified := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.revision = s.Value
		case "vcs.modified":
			modified = s.Value == "true"
		case "CGO_ENABLED":
			b.pure = s.Value == "0"
		}
	}
	if modified && b.revision != "" {
		b.revision += "-dirty"
	}
	return b.orUnknown()
}

func (b build) orUnknown() build {
	if b.version == "" {
		b.version = "unknown"
	}
	if b.revision == "" {
		b.revision = "unknown"
	}
	return b
}

func (b build) text() string { return b.version + " " + b.revision }

func versionCommand(a *app) *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "Print version and revision",
		Flags: []cli.Flag{outputFlag()},
		Action: func(_ context.Context, cmd *cli.Command) error {
			if err := noArguments(cmd); err != nil {
				return err
			}
			b := a.build
			platform, cgo := runtime.GOOS+"/"+runtime.GOARCH, "true"
			if b.pure {
				platform, cgo = platform+", without cgo: reads no NVIDIA GPU", "false"
			}
			return writeOutput(a.out, cmd.String("output"), output{
				table: func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "warpgauge %s (revision %s, %s, %s)\n", b.version, b.revision, runtime.Version(), platform)
					return err
				},
				json: map[string]string{"version": b.version, "revision": b.revision, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH, "cgo": cgo},
				csv:  [][]string{{"version", "revision", "go", "platform", "cgo"}, {b.version, b.revision, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, cgo}},
			})
		},
	}
}
