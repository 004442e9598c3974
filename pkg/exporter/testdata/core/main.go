// Command core is the exporter without any extension, for a test that builds it.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v3"
	"go.uber.org/zap"

	"warpgauge/collectors/fake"
	"warpgauge/pkg/config"
	"warpgauge/pkg/exporter"
)

func vendors(_ *config.Config, start time.Time, _ *zap.Logger) ([]exporter.Vendor, error) {
	v := exporter.Vendor{Name: fake.Name, Simulated: true}
	o := fake.Options{Profile: "dgx-h100", Seed: 1, Start: start}
	var err error
	v.Open, err = fake.Factory(o)
	return []exporter.Vendor{v}, err
}

func main() {
	a := &exporter.Program{
		Streams: exporter.Streams{Out: os.Stdout, Err: os.Stderr}, Log: exporter.NewBacklog(os.Stderr), Environ: os.Environ(), Vendors: vendors,
	}
	a.Flags = config.NewSet(a.Lookup)
	root := &cli.Command{Name: "core", Flags: a.Flags.CLI(), Action: func(ctx context.Context, _ *cli.Command) error { return a.Serve(ctx) }}
	err := root.Run(context.Background(), os.Args)
	a.Log.Flush()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
