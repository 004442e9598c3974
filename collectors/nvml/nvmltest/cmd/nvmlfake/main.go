// Nvmlfake puts a simulated libnvidia-ml.so.1 and the script of a node into a
// directory, for programs that are started by hand:
//
//	go run ./collectors/nvml/nvmltest/cmd/nvmlfake --dir=/tmp/sim --preset=a100-mig
//	bin/warpgauge --enable-nvml=true --nvml-library=/tmp/sim/libnvidia-ml.so.1
//
// The script is /tmp/sim/script. After a change to it,
//
//	go run ./collectors/nvml/nvmltest/cmd/nvmlfake --dir=/tmp/sim --reread
//
// makes every process that uses the library read it again.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"warpgauge/collectors/nvml/nvmltest"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "nvmlfake:", err)
		os.Exit(1)
	}
}

func run() error {
	dir := flag.String("dir", "", "directory to write to")
	preset := flag.String("preset", "h100-sxm", "node: "+strings.Join(nvmltest.Presets(), ", "))
	gpus := flag.Int("gpus", 0, "number of GPUs; 0 is the preset's")
	driver := flag.String("driver", "580", "driver branch or version")
	reread := flag.Bool("reread", false, "only make the library in the directory read its script again")
	flag.Parse()
	switch {
	case *dir == "":
		return fmt.Errorf("--dir is missing")
	case *reread:
		return nvmltest.Reread(*dir)
	}
	c := nvmltest.Config{Preset: *preset, GPUs: *gpus, Driver: *driver}
	n, err := nvmltest.Write(*dir, c, func(err error) { panic(err) })
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(os.Stdout, n.Library())
	return err
}
