//go:build linux && cgo

package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// elements of <gpu> by their path, in the real one's order.
var elements = []struct {
	path string
	of   property
}{
	{"product_name", properties["name"]},
	{"mig_mode/current_mig", migMode},
	{"persistence_mode", properties["persistence_mode"]},
	{"serial", properties["serial"]},
	{"uuid", properties["uuid"]},
	{"minor_number", of(nvml.Device.GetMinorNumber, "%d")},
	{"vbios_version", properties["vbios_version"]},
	{"inforom_version/img_version", properties["inforom.img"]},
	{"gpu_virtualization_mode/virtualization_mode", virtualization},
	{"pci/pci_bus_id", busID},
	{"pci/replay_counter", of(nvml.Device.GetPcieReplayCounter, "%d")},
	{"fan_speed", properties["fan.speed"]},
	{"performance_state", properties["pstate"]},
	{"fb_memory_usage/total", properties["memory.total"]},
	{"fb_memory_usage/reserved", properties["memory.reserved"]},
	{"bar1_memory_usage/total", bar1(func(b nvml.BAR1Memory) uint64 { return b.Bar1Total })},
	{"bar1_memory_usage/used", bar1(func(b nvml.BAR1Memory) uint64 { return b.Bar1Used })},
	{"bar1_memory_usage/free", bar1(func(b nvml.BAR1Memory) uint64 { return b.Bar1Free })},
	{"compute_mode", computeMode},
	{"remapped_rows/remapped_row_corr", remapped(0)},
	{"remapped_rows/remapped_row_unc", remapped(1)},
	{"remapped_rows/remapped_row_pending", remapped(2)},
	{"remapped_rows/remapped_row_failure", remapped(3)},
	{"remapped_rows/row_remapper_histogram/row_remapper_histogram_max", banks(func(h nvml.RowRemapperHistogramValues) uint32 { return h.Max })},
	{"remapped_rows/row_remapper_histogram/row_remapper_histogram_none", banks(func(h nvml.RowRemapperHistogramValues) uint32 { return h.None })},
	{"temperature/gpu_temp_tlimit", func(g gpu) string { m, ret := g.GetMarginTemperature(); return show(m.MarginTemperature, ret, "%d C") }},
	{"temperature/gpu_temp", func(g gpu) string { return properties["temperature.gpu"](g) + " C" }},
	{"temperature/gpu_temp_max_threshold", by(nvml.Device.GetTemperatureThreshold, nvml.TEMPERATURE_THRESHOLD_SHUTDOWN, "%d C")},
	{"temperature/gpu_temp_slow_threshold", by(nvml.Device.GetTemperatureThreshold, nvml.TEMPERATURE_THRESHOLD_SLOWDOWN, "%d C")},
	{"temperature/gpu_temp_max_gpu_threshold", by(nvml.Device.GetTemperatureThreshold, nvml.TEMPERATURE_THRESHOLD_GPU_MAX, "%d C")},
	{"temperature/gpu_temp_max_mem_threshold", by(nvml.Device.GetTemperatureThreshold, nvml.TEMPERATURE_THRESHOLD_MEM_MAX, "%d C")},
	{"max_clocks/video_clock", by(nvml.Device.GetMaxClockInfo, nvml.CLOCK_VIDEO, "%d MHz")},
}

func bar1(of func(nvml.BAR1Memory) uint64) property {
	return func(g gpu) string { b, ret := g.GetBAR1MemoryInfo(); return mebibytes(of(b), ret) }
}

func banks(of func(nvml.RowRemapperHistogramValues) uint32) property {
	return func(g gpu) string { h, ret := g.GetRowRemapperHistogram(); return show(of(h), ret, "%d bank(s)") }
}

func virtualization(g gpu) string {
	v, ret := g.GetVirtualizationMode()
	if ret != nvml.SUCCESS {
		return none
	}
	return map[nvml.GpuVirtualizationMode]string{
		nvml.GPU_VIRTUALIZATION_MODE_NONE: "None", nvml.GPU_VIRTUALIZATION_MODE_PASSTHROUGH: "Pass-Through",
		nvml.GPU_VIRTUALIZATION_MODE_VGPU: "VGPU", nvml.GPU_VIRTUALIZATION_MODE_HOST_VGPU: "Host VGPU",
	}[v]
}

// remapped are the counts, and whether one is pending or has failed.
func remapped(which int) property {
	return func(g gpu) string {
		corrected, uncorrected, pending, failed, ret := g.GetRemappedRows()
		if ret != nvml.SUCCESS {
			return none
		}
		yes := map[bool]string{true: "Yes", false: "No"}
		return [...]string{fmt.Sprint(corrected), fmt.Sprint(uncorrected), yes[pending], yes[failed]}[which]
	}
}

func writeXML(out io.Writer, gpus []gpu) error {
	var b strings.Builder
	b.WriteString("<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\">\n<nvidia_smi_log>\n")
	if len(gpus) > 0 {
		api := gpus[0].api
		cuda, _ := api.SystemGetCudaDriverVersion_v2()
		leaf(&b, "driver_version", properties["driver_version"](gpus[0]))
		leaf(&b, "cuda_version", fmt.Sprintf("%d.%d", cuda/1000, cuda%1000/10))
		leaf(&b, "attached_gpus", fmt.Sprint(len(gpus)))
	}
	for _, g := range gpus {
		fmt.Fprintf(&b, "<gpu id=%q>\n", busID(g))
		for _, e := range elements {
			leaf(&b, e.path, e.of(g))
		}
		b.WriteString("</gpu>\n")
	}
	b.WriteString("</nvidia_smi_log>\n")
	_, err := io.WriteString(out, b.String())
	return err
}

// leaf writes a text within the elements of its path. If the real one puts
// several leaves into one element, this writes the element for each.
func leaf(b *strings.Builder, path, text string) {
	names := strings.Split(path, "/")
	for _, n := range names {
		fmt.Fprintf(b, "<%s>", n)
	}
	_ = xml.EscapeText(b, []byte(text)) // a Builder takes everything
	for i := range names {
		fmt.Fprintf(b, "</%s>", names[len(names)-1-i])
	}
	b.WriteByte('\n')
}
