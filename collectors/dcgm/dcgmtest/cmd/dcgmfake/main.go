// Dcgmfake puts a simulated libdcgm.so.4 and the script of its host engine into a
// directory, for programs that are started by hand:
//
//	go run ./collectors/dcgm/dcgmtest/cmd/dcgmfake --dir=/tmp/sim --preset=a100-mig
//	bin/warpgauge --dcgm-library=/tmp/sim/libdcgm.so.4
//
// The script is /tmp/sim/script. After a change to it,
//
//	go run ./collectors/dcgm/dcgmtest/cmd/dcgmfake --dir=/tmp/sim --reread
//
// makes every process that uses the library read it again; --restart loses their
// connections, as an engine that is started again does.
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
	reread := flag.Bool("reread", false, "only make the library in the directory read its changed script")
	restart := flag.Bool("restart", false, "only lose the connections to the engine in the directory")
	flag.Parse()
	switch {
	case *dir == "":
		return fmt.Errorf("--dir is missing")
	case *reread:
		return dcgmtest.Reread(*dir)
	case *restart:
		return dcgmtest.Restart(*dir)
	}
	e, err := dcgmtest.Write(*dir, dcgmtest.Config{Preset: *preset, GPUs: *gpus, Version: *version}, func(err error) { panic(err) })
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(os.Stdout, e.Library())
	return err
}
