//go:build linux && cgo

// Nvidia-smi simulates the part of nvidia-smi that gpu-check calls: it reads libnvidia-ml.so.1 through go-nvml and
// answers --query-gpu for a few properties. Like an older nvidia-smi, it refuses unknown properties.
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
	query, ok := strings.CutPrefix(args[0], "--query-gpu=")
	if !ok {
		return fmt.Errorf("only --query-gpu=… is simulated")
	}
	names := strings.Split(query, ",")
	for _, name := range names {
		if properties[name] == nil {
			return fmt.Errorf("query: Field %q is not a valid field to query", name)
		}
	}
	api := nvml.New()
	if ret := api.Init(); ret != nvml.SUCCESS {
		return ret
	}
	defer func() { _ = api.Shutdown() }() // the process ends
	count, ret := api.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return ret
	}
	for i := range count {
		d, ret := api.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			return ret
		}
		var cells []string
		for _, name := range names {
			cells = append(cells, properties[name](gpu{d, api, i, count}))
		}
		if _, err := fmt.Fprintln(out, strings.Join(cells, ", ")); err != nil {
			return err
		}
	}
	return nil
}

// gpu is one board.
type gpu struct {
	nvml.Device
	api          nvml.Interface
	index, count int
}

// show formats an answer or nvidia-smi's text for a missing value.
func show[T any](v T, ret nvml.Return, format string) string {
	if ret != nvml.SUCCESS {
		return "[N/A]"
	}
	return fmt.Sprintf(format, v)
}

// of returns a property that one call reads.
func of[T any](call func(nvml.Device) (T, nvml.Return), format string) func(gpu) string {
	return func(g gpu) string { v, ret := call(g); return show(v, ret, format) }
}

func milliwatts(call func(nvml.Device) (uint32, nvml.Return)) func(gpu) string {
	return func(g gpu) string { v, ret := call(g); return show(float64(v)/1000, ret, "%.2f W") }
}

func clock(kind nvml.ClockType) func(gpu) string {
	return func(g gpu) string { v, ret := g.GetClockInfo(kind); return show(v, ret, "%d MHz") }
}

func memory(part func(nvml.Memory_v2) uint64) func(gpu) string {
	return func(g gpu) string { m, ret := g.GetMemoryInfo_v2(); return show(part(m)>>20, ret, "%d MiB") }
}

// properties lists the columns of --query-gpu.
var properties = map[string]func(gpu) string{
	"count":              func(g gpu) string { return fmt.Sprint(g.count) },
	"index":              func(g gpu) string { return fmt.Sprint(g.index) },
	"uuid":               of(nvml.Device.GetUUID, "%s"),
	"name":               of(nvml.Device.GetName, "%s"),
	"serial":             of(nvml.Device.GetSerial, "%s"),
	"driver_version":     func(g gpu) string { v, ret := g.api.SystemGetDriverVersion(); return show(v, ret, "%s") },
	"clocks.sm":          clock(nvml.CLOCK_SM),
	"clocks.mem":         clock(nvml.CLOCK_MEM),
	"temperature.gpu":    func(g gpu) string { v, ret := g.GetTemperature(nvml.TEMPERATURE_GPU); return show(v, ret, "%d") },
	"power.draw":         milliwatts(nvml.Device.GetPowerUsage),
	"power.limit":        milliwatts(nvml.Device.GetPowerManagementLimit),
	"pstate":             of(nvml.Device.GetPerformanceState, "P%d"),
	"fan.speed":          of(nvml.Device.GetFanSpeed, "%d %%"),
	"utilization.gpu":    func(g gpu) string { v, ret := g.GetUtilizationRates(); return show(v.Gpu, ret, "%d %%") },
	"utilization.memory": func(g gpu) string { v, ret := g.GetUtilizationRates(); return show(v.Memory, ret, "%d %%") },
	"memory.total":       memory(func(m nvml.Memory_v2) uint64 { return m.Total }),
	"memory.used":        memory(func(m nvml.Memory_v2) uint64 { return m.Used }),
	"memory.free":        memory(func(m nvml.Memory_v2) uint64 { return m.Free }),
	"pci.bus_id": func(g gpu) string {
		p, ret := g.GetPciInfo()
		return show(fmt.Sprintf("%08X:%02X:%02X.0", p.Domain, p.Bus, p.Device), ret, "%s")
	},
}
