package main

// workloads returns the dashboard for owners: namespaces, pods, jobs.
func workloads() *builder {
	namespace := choice("namespace", "Namespace", "namespace", `pod:gpu_share:ratio{cluster=~"$cluster", job=~"$job"}`)
	pod := choice("pod", "Pod", "pod", `pod:gpu_share:ratio{cluster=~"$cluster", job=~"$job", namespace=~"$namespace"}`)
	const (
		scope   = `cluster=~"$cluster", job=~"$job"`
		device  = `cluster, instance, UUID, GPU_I_ID` // without job: two exporters report one device
		share   = `max by (` + device + `, gpu, namespace, pod) (pod:gpu_share:ratio{` + scope + `, namespace=~"$namespace", pod=~"$pod"})`
		ofOwner = `{` + scope + `, owner_namespace=~"$namespace", owner_pod=~"$pod", owner_pod!=""}`
		util    = `max by (` + device + `) (gpu:utilization:ratio{` + scope + `})`
		ofJobs  = `max by (hpc_job, ` + device + `) (warpgauge_device_owner{` + scope + `, hpc_job!=""})`
	)
	b := newDashboard("warpgauge-workloads", "GPUs / Workloads",
		"GPUs by namespace, pod and job. A device that n owners share counts 1/n for each, a MIG instance as its slices of the GPU. Needs the rules of deploy/prometheus.", namespace, pod)
	b.annotate(scope)
	b.row("Namespaces")
	b.stacked("GPUs allocated", "MIG instances are fractions of a GPU, by slices.", "short", query{"{{namespace}}", `sum by (namespace) (` + share + `)`}).empty(needsRules)
	b.lines("Utilisation of what is allocated", "Mean over the devices that a namespace has, by their shares; of a shared device the device's, of a MIG instance its engine's.", "percentunit",
		query{"{{namespace}}", `sum by (namespace) (` + share + ` * on (` + device + `) group_left () ` + util + `) / sum by (namespace) (` + share + ` and on (` + device + `) ` + util + `)`}).empty(needsRules)
	b.stacked("Power", "Of a GPU's power each owner has its share; the part of slices without an owner is left out.", "watt",
		query{"{{namespace}}", `sum by (namespace) (` + share + ` * on (cluster, instance, UUID) group_left () max by (cluster, instance, UUID) (gpu:power:watts{` + scope + `}))`}).empty(needsRules)
	b.lines("GPU-hours in the last hour", "Of all jobs of Prometheus. Idle: the device was below 1 % for half an hour.", "h",
		query{"{{namespace}}", `sum by (namespace) (namespace:gpu_hours:sum1h{cluster=~"$cluster", namespace=~"$namespace"})`},
		query{"{{namespace}} idle", `sum by (namespace) (namespace:gpu_hours_idle:sum1h{cluster=~"$cluster", namespace=~"$namespace"})`}).empty(needsRules)
	b.table(24, "Allocated and idle", "Below 1 % in every sample of the last half hour. GPUs is how much of one is idle.", "short",
		share+` * on (`+device+`) group_left () max by (`+device+`) (gpu:idle_allocated:bool{`+scope+`} == 1)`,
		column{"namespace", "Namespace", 0}, column{"pod", "Pod", 0}, nodeColumn, gpuColumn, instanceColumn, value("GPUs")).empty("No device that has an owner is idle.")

	b.row("Pods")
	const legend = "{{namespace}}/{{pod}} GPU {{gpu}} {{GPU_I_ID}}"
	b.lines("Utilisation", "Of the pod's devices. Of a device that is shared, the pod's own part where processes are known (--process-values).", "percentunit",
		query{legend, ofPods(`DCGM_FI_DEV_GPU_UTIL`, ` / 100`) + ` or on (` + device + `, namespace, pod) ` + share + ` * 0 + on (` + device + `) group_left () ` + util}).empty(needsRules)
	b.lines("Memory", "", "mbytes",
		query{legend, ofPods(`DCGM_FI_DEV_FB_USED`, ``) + ` or on (` + device + `, namespace, pod) ` + share + ` * 0 + on (` + device + `) group_left () max by (` + device + `) (gpu:memory_used:bytes{` + scope + `}) / 1048576`}).empty(needsRules)
	b.table(24, "Who has what", "", "short", `warpgauge_device_owner`+ofOwner, owners()...).empty("No pod has a device.")

	b.row("Jobs")
	b.lines("GPUs by job", "From --hpc-job-mapping-dir.", "short", query{"job {{hpc_job}}", `sum by (hpc_job) (hpc_job:gpus_allocated:sum{cluster=~"$cluster"})`}).empty("No job has a device, or the rules of deploy/prometheus are missing.")
	b.lines("Utilisation by job", "Mean over the job's devices.", "percentunit",
		query{"job {{hpc_job}}", `avg by (hpc_job) (` + ofJobs + ` * on (` + device + `) group_left () ` + util + `)`}).empty("No job has a device.")

	b.row("Shared devices")
	b.table(24, "Devices with several owners", "", "short", `warpgauge_device_owners{`+scope+`} > 1`, nodeColumn, gpuColumn, instanceColumn, uuidColumn, value("Owners")).empty("No device is shared.")
	return b
}

// ofPods selects a field of the devices that pods use. Without honorLabels, Prometheus renames the exporter's labels to
// exported_… and gives the plain names to the exporter's own pod. Series without an owner are skipped.
func ofPods(metric, unit string) string {
	const by = `max by (cluster, instance, gpu, UUID, GPU_I_ID, namespace, pod) `
	part := func(series string) string {
		return by + `(` + series + `)` + unit + ` and on (cluster, instance, UUID, GPU_I_ID, namespace, pod) pod:gpu_share:ratio`
	}
	renamed := `(` + metric + `{cluster=~"$cluster", job=~"$job", exported_namespace=~"$namespace", exported_pod=~"$pod", exported_pod!=""})`
	for _, label := range []string{"namespace", "pod"} {
		renamed = `label_replace(` + renamed + `, "` + label + `", "$1", "exported_` + label + `", "(.+)")`
	}
	return `(` + part(metric+`{cluster=~"$cluster", job=~"$job", namespace=~"$namespace", pod=~"$pod", exported_pod=""}`) + ` or ` + part(renamed) + `)`
}
