package main

// needsRules is shown by panels whose recorded series are missing.
const needsRules = "Needs the rules of deploy/prometheus."

// fleet returns the dashboard for the operator of all nodes: how many GPUs, how busy, which are broken.
func fleet() *builder {
	b := newDashboard("warpgauge-fleet", "GPUs / Fleet", "All GPUs of all nodes: how many there are, how busy they are, what is wrong.", model, instance)
	b.annotate(ofModels)
	allocated := boards(`gpu:allocated:ratio{N} unless on (cluster, instance, UUID) (DCGM_FI_DEV_GPU_TEMP{modelName!~"$model", N})`, "")
	utilisation := boards(`gpu:utilization:ratio{GPU_I_ID="", S}`, ", modelName")
	used, free := perGPU("DCGM_FI_DEV_FB_USED", ofModels), perGPU("DCGM_FI_DEV_FB_FREE", ofModels)
	b.row("Now")
	b.stat(3, "GPUs", "Whole GPUs that are sampled. A GPU in MIG mode is one.", "short",
		fleetWide(`count(`+boards(`DCGM_FI_DEV_GPU_TEMP{S}`, "")+`)`)).empty("No GPUs")
	b.stat(3, "Nodes", "", "short", fleetWide(`count(count by (cluster, instance) (DCGM_FI_DEV_GPU_TEMP{S}))`)).empty("No nodes")
	b.stat(3, "Failed", "Devices with the verdict failed.", "short",
		fleetWide(`count(count by (cluster, device) (`+ofTheModel(`warpgauge_device_health{state="failed", device=~"GPU-[^/:]+", N}`)+
			`) or count by (cluster, instance, device) (`+ofTheModel(`warpgauge_device_health{state="failed", device!~"GPU-[^:]+|.+/.+", N}`)+`)) or vector(0)`), from(1, "red"))
	b.stat(3, "Utilisation", "Mean over all GPUs, of the time with at least one kernel running. A GPU in MIG mode counts with its instances' engines, by slices.", "percentunit",
		fleetWide(`avg(`+utilisation+`)`)).empty(needsRules)
	b.stat(3, "Allocated", "Share of the GPUs that a pod or a job has. Of a GPU in MIG mode the slices count.", "percentunit",
		fleetWide(`avg(`+allocated+`)`)).empty(needsRules)
	b.stat(3, "Power", "", "watt", fleetWide(`sum(`+boards(`DCGM_FI_DEV_POWER_USAGE{S}`, "")+`)`))
	b.stat(3, "Hottest", "", "celsius", fleetWide(`max(DCGM_FI_DEV_GPU_TEMP{S})`), from(83, "yellow"), from(87, "red"))
	b.stat(3, "XIDs in 24 h", xidsMeaning+"The table below has them.", "short", fleetWide(`count(count by (cluster, UUID, uuid, err_code) (`+xidsIn24h(ofModels)+`)) or vector(0)`), from(1, "orange"))

	b.row("Over time")
	b.lines("Utilisation by model", "Mean of the GPUs of a model; of a GPU in MIG mode that of its instances' engines, by slices.", "percentunit",
		query{"{{modelName}}", fleetWide(`avg by (modelName) (` + utilisation + `)`)}).empty(needsRules)
	b.stacked("Power by model", "", "watt",
		query{"{{modelName}}", fleetWide(`sum by (modelName) (` + boards(`DCGM_FI_DEV_POWER_USAGE{S}`, ", modelName") + `)`)})
	b.lines("Allocated and used", "Shares of all GPUs.", "percentunit",
		query{"allocated", fleetWide(`avg(` + allocated + `)`)}, query{"used", fleetWide(`avg(` + utilisation + `)`)}).empty(needsRules)
	b.lines("Memory in use", "Of all device memory of a model.", "percentunit",
		query{"{{modelName}}", `sum by (modelName) (` + used + `) / sum by (modelName) (` + used + ` + ` + free + `)`})

	b.row("Look closer")
	b.table(12, "Devices that are not well", "", "short",
		fleetWide(ofTheModel(`warpgauge_device_health{state!="ok", N}`)), append([]column{nodeColumn}, verdict()...)...).empty("All devices are well.")
	b.table(12, "Missing GPUs", "On the PCI bus, or there before, and served by no driver.", "short",
		fleetWide(`warpgauge_gpus_missing{N} > 0`), nodeColumn, column{"pci_bus_id", "PCI address", 0}, column{"slot", "Slot", 0}, column{"basis", "Known by", 0}, value("GPUs")).
		empty("No GPU is missing.")
	b.table(12, "Busiest nodes", "The ten with the highest mean utilisation now.", "percentunit",
		fleetWide(`topk(10, avg by (cluster, instance) (max by (cluster, instance, UUID) (gpu:utilization:ratio{GPU_I_ID="", S})))`), column{nodeColumn.label, nodeColumn.title, 0}, value("Utilisation")).empty(needsRules)
	b.table(12, "Hottest GPUs", "The ten with the highest temperature now.", "celsius",
		fleetWide(`topk(10, max by (cluster, instance, gpu, modelName) (DCGM_FI_DEV_GPU_TEMP{S}))`), nodeColumn, gpuColumn, modelColumn, value("Temperature")).
		coloured("Temperature", from(83, "yellow"), from(87, "red"))
	b.table(12, "XIDs in 24 h", xidsMeaning, "short", fleetWide(xidsIn24h(ofModels)), nodeColumn, gpuColumn, modelColumn, xidColumn, xidTextColumn).empty("None.")
	drivers := driverOf(`(` + boards(`DCGM_FI_DEV_GPU_TEMP{DCGM_FI_DRIVER_VERSION!="", S}`, ", modelName, DCGM_FI_DRIVER_VERSION") +
		` or ` + boards(`DCGM_FI_DEV_GPU_TEMP{DCGM_FI_SYSTEM_DRIVER_VERSION!="", S}`, ", modelName, DCGM_FI_SYSTEM_DRIVER_VERSION") + `)`)
	b.table(12, "Drivers", "GPUs by driver version.", "short",
		fleetWide(`count by (driver, modelName) (count by (cluster, instance, gpu, UUID, driver, modelName) (`+drivers+`))`),
		modelColumn, column{"driver", "Driver", 0}, value("GPUs"))
	return b
}
