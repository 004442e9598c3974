// Command warpgauge exports GPU metrics to Prometheus. See the README.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"warpgauge/etc"
	"warpgauge/pkg/config"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/kube"
)

// version is set by the linker: -ldflags "-X main.version=v1.2.3".
var version string

// moved lists former commands of warpgauge, now in warpctl.
var moved = []string{"top", "doctor", "compare", "replay"}

func main() {
	kube.SilenceLibraries()
	os.Exit(run(context.Background(), os.Args, exporter.Streams{Out: os.Stdout, Err: os.Stderr}, os.Environ(), config.DefaultCounters()...))
}

// run runs the program and returns its exit code. defaults are the counters CSVs to try if the user names none.
func run(ctx context.Context, args []string, s exporter.Streams, environ []string, defaults ...string) int {
	a := exporter.NewProgram(s, environ, version, vendors, extensions()...)
	a.Defaults, a.BuiltIn = defaults, etc.DefaultCounters()
	if len(args) > 1 && slices.Contains(moved, args[1]) {
		return config.ExitCode(s.Err, "warpgauge", &config.ExitError{Code: 2, Err: fmt.Errorf("%s is a command of warpctl now: warpctl %[1]s --help", args[1])})
	}
	return exporter.Run(ctx, a, args)
}
