package main

// node is every GPU of some nodes next to each other.
func node() *builder {
	b := newDashboard("warpgauge-node", "GPUs / Node", "Every GPU of a node, on NVIDIA and AMD alike.", instance, gpuIndex)
	b.legend = "right" // a line for each GPU
	b.row("Now")
	b.stat(4, "GPUs", "", "short", `count(count by (instance, UUID) (DCGM_FI_DEV_GPU_TEMP`+sel+`))`)
	b.stat(4, "Utilisation", "", "percent", `avg(`+byDevice("DCGM_FI_DEV_GPU_UTIL")+`)`)
	b.stat(4, "Memory in use", "", "mbytes", `sum(`+byDevice("DCGM_FI_DEV_FB_USED")+`)`)
	b.stat(4, "Power", "", "watt", `sum(`+byDevice("DCGM_FI_DEV_POWER_USAGE")+`)`)
	b.stat(4, "Hottest", "", "celsius", `max(DCGM_FI_DEV_GPU_TEMP`+sel+`)`, from(83, "yellow"), from(87, "red"))
	b.stat(4, "Oldest sample", "A value older than --stale-after is not shown as new.", "s",
		`max(warpgauge_sample_age_seconds`+sel+`)`, from(10, "yellow"), from(60, "red"))

	b.table(24, "Health", "The exporter's verdict on each device; docs/health-rules.md has the reasons.", "short",
		`warpgauge_device_health`+sel, append([]column{nodeColumn}, verdict()...)...)

	b.row("Work")
	b.lines(12, "Utilisation", "Share of time with at least one kernel running. Instances of MIG have no such value; see the next panel.", "percent", device("DCGM_FI_DEV_GPU_UTIL"))
	b.lines(12, "Engine active", "Share of time in which the graphics and compute engine was busy, also of MIG instances.", "percentunit", device("DCGM_FI_PROF_GR_ENGINE_ACTIVE"))
	b.lines(12, "Memory used", "", "mbytes", device("DCGM_FI_DEV_FB_USED"))
	b.lines(12, "Tensor cores", "Share of time in which the tensor pipe was busy. NVIDIA only.", "percentunit", device("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"))

	b.row("Power and heat")
	b.lines(12, "Power", "", "watt", device("DCGM_FI_DEV_POWER_USAGE"))
	b.lines(12, "Power, true mean", "From the energy counter: nothing between two scrapes is missed.", "watt",
		query{deviceLegend, rateByDevice("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION") + ` / 1000`})
	b.lines(12, "GPU temperature", "", "celsius", device("DCGM_FI_DEV_GPU_TEMP"))
	b.lines(12, "Memory temperature", "", "celsius", device("DCGM_FI_DEV_MEMORY_TEMP"))
	b.lines(12, "SM clock", "", "hertz", query{deviceLegend, byDevice("DCGM_FI_DEV_SM_CLOCK") + ` * 1e6`})
	b.lines(12, "Memory clock", "", "hertz", query{deviceLegend, byDevice("DCGM_FI_DEV_MEM_CLOCK") + ` * 1e6`})

	b.row("Who")
	b.table(24, "Owners", "Pods and jobs that have a device. Several for a shared one.", "short",
		`warpgauge_device_owner`+sel, owners()...)
	return b
}
