package main

// noProfiling is shown by panels whose profiling fields are missing.
const noProfiling = "These GPUs do not measure it, or the list lacks it."

// node returns the dashboard that compares all GPUs of some nodes.
func node() *builder {
	b := newDashboard("warpgauge-node", "GPUs / Node", "Every GPU of a node, on NVIDIA and AMD alike.", instance, gpuIndex, rateStep)
	b.annotate(ofGPUs)
	b.legend = "right" // one line per GPU
	b.links = []dataLink{toGPU("${__field.labels.instance}", "${__field.labels.gpu}")}
	b.row("Now")
	b.stat(4, "GPUs", "", "short", `count(`+boards(`DCGM_FI_DEV_GPU_TEMP`+sel, "")+`)`).empty("No GPUs")
	b.stat(4, "Utilisation", "Mean; a GPU in MIG mode counts with its instances' engines, by slices.", "percentunit", `avg(`+boards(`gpu:utilization:ratio{GPU_I_ID="", `+ofGPUs+`}`, "")+`)`).empty(needsRules)
	b.stat(4, "Memory in use", "", "mbytes", `sum(`+perGPU("DCGM_FI_DEV_FB_USED", ofGPUs)+`)`)
	b.stat(4, "Power", "", "watt", `sum(`+boards(`DCGM_FI_DEV_POWER_USAGE`+sel, "")+`)`)
	b.stat(4, "Hottest", "", "celsius", `max(DCGM_FI_DEV_GPU_TEMP`+sel+`)`, from(83, "yellow"), from(87, "red"))
	b.stat(4, "Oldest sample", "A value older than --stale-after is not shown as new.", "s",
		`max(warpgauge_sample_age_seconds`+sel+`)`, from(10, "yellow"), from(60, "red"))

	b.table(24, "Health", "The exporter's verdict on each device; docs/health-rules.md has the reasons.", "short",
		`warpgauge_device_health`+sel, append([]column{nodeColumn}, verdict()...)...)

	b.row("Work")
	b.lines("Utilisation", "Share of time with at least one kernel running; of a MIG instance, that its engine was busy.", "percent", query{deviceLegend, busy})
	b.lines("Engine active", "Share of time in which the graphics and compute engine was busy.", "percentunit", device("DCGM_FI_PROF_GR_ENGINE_ACTIVE")).empty(noProfiling)
	b.lines("Memory used", "", "mbytes", device("DCGM_FI_DEV_FB_USED"))
	b.lines("Tensor cores", "Share of time in which the tensor pipe was busy.", "percentunit", device("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")).
		empty("Only NVIDIA's data centre GPUs measure it, if the list has it.")

	b.row("Power and heat")
	b.lines("Power", "", "watt", device("DCGM_FI_DEV_POWER_USAGE"))
	b.lines("Power, true mean", "From the energy counter: nothing between two scrapes is missed.", "watt",
		query{deviceLegend, rateByDevice("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION") + ` / 1000`})
	b.lines("GPU temperature", "", "celsius", device("DCGM_FI_DEV_GPU_TEMP")).limits(from(87, "red"))
	b.lines("Memory temperature", "", "celsius", device("DCGM_FI_DEV_MEMORY_TEMP")).limits(from(95, "red")).empty("These GPUs have no sensor in their memory.")
	b.lines("SM clock", "", "hertz", query{deviceLegend, byDevice("DCGM_FI_DEV_SM_CLOCK") + ` * 1e6`})
	b.lines("Memory clock", "", "hertz", query{deviceLegend, byDevice("DCGM_FI_DEV_MEM_CLOCK") + ` * 1e6`})

	b.row("Who")
	b.table(24, "Owners", "Pods and jobs that have a device. Several for a shared one.", "short",
		`warpgauge_device_owner`+sel, owners()...).empty("No pod and no job has a device, or the exporter is not asked to find out.")
	return b
}
