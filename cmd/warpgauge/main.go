// Command warpgauge exports GPU metrics to Prometheus. See the README.
package main

import (
	"context"
	"io"
	"os"

	"warpgauge/pkg/config"
	"warpgauge/pkg/kube"
)

func main() {
	kube.SilenceGRPC()
	os.Exit(run(context.Background(), os.Args, streams{out: os.Stdout, err: os.Stderr}, os.Environ(), config.DefaultCounters()...))
}

// streams is where a command writes: what was asked for, and everything else.
type streams struct{ out, err io.Writer }
