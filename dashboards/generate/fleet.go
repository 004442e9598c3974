package main

// fleet is for the operator of all nodes: how many, how busy, what is broken.
func fleet() *builder {
	b := newDashboard("warpgauge-fleet", "GPUs / Fleet", "All GPUs of all nodes: how many there are, how busy they are, what is wrong.", instance)
	b.row("Now")
	b.stat(3, "GPUs", "Whole GPUs that are sampled. A GPU in MIG mode is one.", "short",
		fleetWide(`count(count by (instance, UUID) (DCGM_FI_DEV_GPU_TEMP{S}))`))
	b.stat(3, "Nodes", "", "short", fleetWide(`count(count by (instance) (DCGM_FI_DEV_GPU_TEMP{S}))`))
	b.stat(3, "Failed", "Devices that must get no work, by the exporters' verdicts.", "short",
		fleetWide(`count(warpgauge_device_health{state="failed", S}) or vector(0)`), from(1, "red"))
	b.stat(3, "Utilisation", "Mean over all GPUs, of the time with at least one kernel running.", "percent",
		fleetWide(`avg(max by (instance, UUID, GPU_I_ID) (DCGM_FI_DEV_GPU_UTIL{S}))`))
	b.stat(3, "Allocated", "Share of the devices that a pod or a job has.", "percentunit",
		fleetWide(`avg(max by (instance, UUID, GPU_I_ID) (warpgauge_device_owners{S}) > bool 0)`))
	b.stat(3, "Power", "", "watt", fleetWide(`sum(max by (instance, UUID) (DCGM_FI_DEV_POWER_USAGE{S}))`))
	b.stat(3, "Hottest", "", "celsius", fleetWide(`max(DCGM_FI_DEV_GPU_TEMP{S})`), from(83, "yellow"), from(87, "red"))
	b.stat(3, "XIDs in 24 h", "GPUs with an XID that they had not yesterday.", "short",
		fleetWide(`count(count by (instance, UUID) (max by (instance, UUID, err_code) (last_over_time(DCGM_FI_DEV_XID_ERRORS{err_code!="0", S}[1d])) unless max by (instance, UUID, err_code) (DCGM_FI_DEV_XID_ERRORS{S} offset 1d))) or vector(0)`), from(1, "orange"))

	b.row("Over time")
	b.lines(12, "Utilisation by model", "Mean of the GPUs of a model.", "percent",
		query{"{{modelName}}", fleetWide(`avg by (modelName) (max by (instance, UUID, GPU_I_ID, modelName) (DCGM_FI_DEV_GPU_UTIL{S}))`)})
	b.stacked("Power by model", "", "watt",
		query{"{{modelName}}", fleetWide(`sum by (modelName) (max by (instance, UUID, modelName) (DCGM_FI_DEV_POWER_USAGE{S}))`)})
	b.lines(12, "Busiest nodes", "The ten nodes with the highest mean utilisation.", "percent",
		query{"{{instance}}", fleetWide(`topk(10, avg by (instance) (max by (instance, UUID, GPU_I_ID) (DCGM_FI_DEV_GPU_UTIL{S})))`)})
	b.lines(12, "Memory in use", "Of all device memory of a model.", "percentunit",
		query{"{{modelName}}", fleetWide(`sum by (modelName) (max by (instance, UUID, GPU_I_ID, modelName) (DCGM_FI_DEV_FB_USED{S})) / sum by (modelName) (max by (instance, UUID, GPU_I_ID, modelName) (DCGM_FI_DEV_FB_USED{S}) + max by (instance, UUID, GPU_I_ID, modelName) (DCGM_FI_DEV_FB_FREE{S}))`)})

	b.row("Look closer")
	b.table(12, "Devices that are not well", "", "short",
		fleetWide(`warpgauge_device_health{state!="ok", S}`), append([]column{nodeColumn}, verdict()...)...)
	b.table(12, "Hottest GPUs", "", "celsius",
		fleetWide(`topk(10, max by (instance, gpu, modelName) (DCGM_FI_DEV_GPU_TEMP{S}))`), nodeColumn, gpuColumn, modelColumn, value("Temperature"))
	b.table(12, "XIDs in 24 h", "Of GPUs that are lost by now as well.", "short",
		fleetWide(`max by (instance, gpu, modelName, err_code, err_msg) (last_over_time(DCGM_FI_DEV_XID_ERRORS{err_code!="0", S}[1d]))`), nodeColumn, gpuColumn, modelColumn, xidColumn, xidTextColumn)
	b.table(12, "Drivers", "GPUs by driver version.", "short",
		fleetWide(`count by (driver, modelName) (count by (instance, UUID, driver, modelName) (`+driverOf(`(DCGM_FI_DEV_GPU_TEMP{S})`)+`))`),
		modelColumn, column{"driver", "Driver", 0}, value("GPUs"))
	return b
}
