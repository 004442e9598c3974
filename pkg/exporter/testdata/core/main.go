// Command core is the exporter without any extension, for a test that builds it.
package main

import (
	"context"
	"os"
	"time"

	"warpgauge/etc"

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
	a := exporter.NewProgram(exporter.Streams{Out: os.Stdout, Err: os.Stderr}, os.Environ(), "", vendors)
	a.BuiltIn = etc.DefaultCounters()
	os.Exit(exporter.Run(context.Background(), a, os.Args))
}
