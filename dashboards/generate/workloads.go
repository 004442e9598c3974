package main

// workloads is the owners' view: namespaces, pods, jobs. It wants honorLabels.
func workloads() *builder {
	namespace := choice("namespace", "Namespace", "namespace", `warpgauge_device_owner`)
	pod := choice("pod", "Pod", "pod", `warpgauge_device_owner{namespace=~"$namespace"}`)
	const who = `{namespace=~"$namespace", pod=~"$pod", pod!=""}`
	const share = `sum by (instance, UUID, GPU_I_ID, namespace, pod) (warpgauge_device_owner` + who + `) / on (instance, UUID, GPU_I_ID) group_left () max by (instance, UUID, GPU_I_ID) (warpgauge_device_owners > 0)`
	b := newDashboard("warpgauge-workloads", "GPUs / Workloads",
		"GPUs by namespace, pod and job. A device that n owners share counts 1/n for each.", namespace, pod)
	b.row("Namespaces")
	b.stacked("GPUs allocated", "", "short", query{"{{namespace}}", `sum by (namespace) (` + share + `)`})
	b.lines(12, "Utilisation of what is allocated", "Mean over the devices that a namespace has; of a shared device the device's.", "percent",
		query{"{{namespace}}", `avg by (namespace) (max by (instance, UUID, GPU_I_ID, namespace) (warpgauge_device_owner` + who + `) * on (instance, UUID, GPU_I_ID) group_left () max by (instance, UUID, GPU_I_ID) (DCGM_FI_DEV_GPU_UTIL))`})
	b.stacked("Power", "Power of whole GPUs, shared by their owners.", "watt",
		query{"{{namespace}}", `sum by (namespace) ((` + share + `) * on (instance, UUID) group_left () max by (instance, UUID) (DCGM_FI_DEV_POWER_USAGE))`})
	b.lines(12, "GPU-hours in the last hour", "Needs deploy/prometheus/rules/recording.yml.", "h",
		query{"{{namespace}}", `namespace:gpu_hours:sum1h{namespace=~"$namespace"}`}, query{"{{namespace}} idle", `namespace:gpu_hours_idle:sum1h{namespace=~"$namespace"}`})

	b.row("Pods")
	b.lines(12, "Utilisation", "Of the pod's devices. Of a device that is shared, the pod's own part where processes are known (--process-values).", "percent",
		query{"{{namespace}}/{{pod}} GPU {{gpu}}", `max by (namespace, pod, instance, gpu, GPU_I_ID) (DCGM_FI_DEV_GPU_UTIL` + who + `)`})
	b.lines(12, "Memory", "", "mbytes",
		query{"{{namespace}}/{{pod}} GPU {{gpu}}", `max by (namespace, pod, instance, gpu, GPU_I_ID) (DCGM_FI_DEV_FB_USED` + who + `)`})
	b.table(24, "Who has what", "", "short", `warpgauge_device_owner`+who, owners()...)

	b.row("Jobs")
	b.lines(12, "GPUs by job", "From --hpc-job-mapping-dir.", "short", query{"job {{hpc_job}}", `count by (hpc_job) (count by (hpc_job, instance, UUID, GPU_I_ID) (warpgauge_device_owner{hpc_job!=""}))`})
	b.lines(12, "Utilisation by job", "", "percent", query{"job {{hpc_job}}", `avg by (hpc_job) (max by (hpc_job, instance, UUID, GPU_I_ID) (DCGM_FI_DEV_GPU_UTIL{hpc_job!=""}))`})

	b.row("Shared devices")
	b.table(24, "Devices with several owners", "", "short", `warpgauge_device_owners > 1`, nodeColumn, gpuColumn, instanceColumn, uuidColumn, value("Owners"))
	return b
}
