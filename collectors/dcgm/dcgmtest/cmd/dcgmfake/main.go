// Dcgmfake writes a simulated libdcgm.so.4 and the script of its host engine to a
// directory, for programs that are started by hand:
//
//	go run ./collectors/dcgm/dcgmtest/cmd/dcgmfake --dir=/tmp/sim --preset=a100-mig
//	bin/warpgauge --dcgm-library=/tmp/sim/libdcgm.so.4
//
// The script is /tmp/sim/script.
package main

import (
	"flag"
	"fmt"
	"os"

	"warpgauge/collectors/dcgm/dcgmtest"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "dcgmfake:", err)
		os.Exit(1)
	}
}

func run() error {
	dir := flag.String("dir", "", "directory to write to")
	preset := flag.String("preset", "dgx-h100", "node: dgx-h100, a100-mig, gb200, pcie")
	gpus := flag.Int("gpus", 0, "number of GPUs; 0 is the preset's")
	version := flag.String("version", "4.6.0", "version of library and engine")
	flag.Parse()
	if *dir == "" {
		return fmt.Errorf("--dir is missing")
	}
	e, err := dcgmtest.Write(*dir, dcgmtest.Config{Preset: *preset, GPUs: *gpus, Version: *version}, func(err error) { panic(err) })
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(os.Stdout, e.Library())
	return err
}
