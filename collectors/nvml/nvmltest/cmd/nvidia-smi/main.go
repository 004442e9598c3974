//go:build linux && cgo

// Nvidia-smi is the part of nvidia-smi that gpu-check calls, for a simulated node: it reads libnvidia-ml.so.1 through
// go-nvml and prints nvidia-smi's formats.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		// The real nvidia-smi writes to stdout, too.
		_, _ = fmt.Fprintln(os.Stdout, err)
		os.Exit(2)
	}
}

func run(out io.Writer, args []string) error {
	api := nvml.New()
	if ret := api.Init(); ret != nvml.SUCCESS {
		return complaint("Failed to initialize NVML: " + ret.Error())
	}
	err := answer(out, api, args)
	if ret := api.Shutdown(); err == nil && ret != nvml.SUCCESS {
		return ret
	}
	return err
}

// complaint returns an error in nvidia-smi's words.
type complaint string

func (c complaint) Error() string { return string(c) }

func answer(out io.Writer, api nvml.Interface, args []string) error {
	count, ret := api.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return ret
	}
	var gpus []gpu
	for i := range count {
		d, ret := api.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			return ret
		}
		gpus = append(gpus, gpu{api: api, Device: d, index: i, count: count})
	}
	if len(args) == 2 && args[0] == "-q" && args[1] == "-x" {
		return writeXML(out, gpus)
	}
	for _, a := range args {
		if query, ok := strings.CutPrefix(a, "--query-gpu="); ok {
			return writeCSV(out, gpus, strings.Split(query, ","))
		}
	}
	return fmt.Errorf("only -q -x and --query-gpu=… are simulated")
}

// gpu is one board.
type gpu struct {
	nvml.Device
	api          nvml.Interface
	index, count int
}

func writeCSV(out io.Writer, gpus []gpu, names []string) error {
	for _, name := range names {
		if properties[name] == nil {
			return complaint(fmt.Sprintf("Field %q is not a valid field to query.\n", name))
		}
	}
	for _, g := range gpus {
		var cells []string
		for _, name := range names {
			cells = append(cells, properties[name](g))
		}
		if _, err := fmt.Fprintln(out, strings.Join(cells, ", ")); err != nil {
			return err
		}
	}
	return nil
}
