// Command warpgauge exports GPU metrics to Prometheus. See the README.
package main

import (
	"context"
	"os"

	"warpgauge/pkg/exporter"

	"warpgauge/pkg/config"
	"warpgauge/pkg/kube"
)

func main() {
	kube.SilenceGRPC()
	os.Exit(run(context.Background(), os.Args, exporter.Streams{Out: os.Stdout, Err: os.Stderr}, os.Environ(), config.DefaultCounters()...))
}
